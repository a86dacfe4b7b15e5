//! What formulas mean (`spec/sidecarset.md` 3.4 to 3.7, and the tables of 4.1, 4.2 and 4.7).

use super::*;
use crate::formula::{Formula, Kind};

fn assert_table(variables: &str, table: &[(&str, &str)]) {
    for (text, expected) in table {
        assert_eq!(told(text, variables), *expected, "{text:?} with {variables:?}");
    }
}

#[test]
fn numbers() {
    assert_table(
        "",
        &[
            ("2 + 3", "5"),
            ("10 - 4", "6"),
            ("3 * 4", "12"),
            ("15 / 3", "5"),
            ("(2 + 3) * 4", "20"),
            ("2 + 3 * 4", "14"),
            ("2+3+4/2", "7"),
            ("10 - 4 - 3", "3"),
            ("100 / 5 / 2", "10"),
            ("50%", "0.5"),
            ("100.5%", "1.005"),
            ("100% * 2", "2"),
            ("50% * 200", "100"),
            ("max(10, 20)", "20"),
            ("min(10, 20)", "10"),
            ("max(min(max(10, 20), 15), 25)", "25"),
            ("max(10 + 5, 20 - 5) * 2", "30"),
            ("min(max(max(max(0.5,0.5*0.5),0.5-1.0),0.5-1.0),3.0)", "0.5"),
            ("1e2", "100"),
            ("1E+3", "1000"),
            ("1e-3", "0.001"),
            ("2.5E+1", "25"),
            ("1e3+-200", "800"),
            (".5 + .5", "1"),
            ("1.5+2", "3.5"),
            ("999999999999999999 + 1", "1e+18"),
            ("176000000000001.125", "1.7600000000000112e+14"),
            (
                "0.000000000000000001 + 0.000000000000000002",
                "3.0000000000000002e-18",
            ),
            ("1234567", "1.234567e+06"),
            ("0.1+0.2", "0.30000000000000004"),
            ("-0", "-0"),
            ("10 - 10", "0"),
        ],
    );
}

#[test]
fn signs() {
    assert_table(
        "cpu=1.5",
        &[
            ("10+-5", "5"),
            ("10--5", "15"),
            ("20+-10+5", "15"),
            ("--5", "5"),
            ("---5", "ERR calculation result is negative: -5"),
            ("2*-3+10", "4"),
            ("max(min(2*cpu,-cpu+3.0),2*cpu-3.0)", "1500m"),
            ("--1.500k", "1500"),
        ],
    );
}

#[test]
fn spaces() {
    assert_table(
        "",
        &[
            ("  2  \t  +  \n  3  ", "5"),
            ("max(  10  ,  20  )", "20"),
            ("2\u{b}+\u{c}3\r", "5"),
            ("2+3\0 and nobody reads on", "5"),
        ],
    );
}

#[test]
fn quantities() {
    assert_table(
        "",
        &[
            ("40m + 20m", "60m"),
            ("100Mi - 50Mi", "50Mi"),
            ("2 * 40m", "80m"),
            ("100m / 2", "50m"),
            ("max(40m, 20)", "20"),
            ("min(40m, 20m)", "20m"),
            ("min(max(max(max(500m,0.5*0.5),0.5-1.0),0.5-1.0),3.0)", "500m"),
            ("0m + 0m", "0"),
            ("1000Gi + 500Gi", "1500Gi"),
            ("1.5Gi * 2", "3Gi"),
            ("1Gi + 100Mi", "1124Mi"),
            ("(100m + 50m) * 2 - 50m", "250m"),
            ("max(100m, min(200m, 150m)) + 50m", "200m"),
            (".5Mi", "512Ki"),
            ("1.5m", "1500u"),
            ("1G + 1Gi", "2073741824"),
            ("1Gi - 1G", "73741824"),
            ("0 + 1Gi", "1Gi"),
            ("0.0005 + 1Gi", "1Gi"),
            ("1P * 9", "9P"),
        ],
    );
    for unit in ["m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"] {
        let literal = format!("1{unit}");
        assert_eq!(told(&literal, ""), literal);
    }
    for spelled in ["1.500k", "0100Mi", "1.m"] {
        assert_eq!(told(spelled, ""), spelled, "a literal alone keeps its spelling");
    }
}

/// Every product and quotient is cut to thousandths at once, from the double that it is.
#[test]
fn products_are_cut_off() {
    assert_table(
        "",
        &[
            ("100m*29%", "28m"),
            ("100m*57%", "56m"),
            ("100m*58%", "57m"),
            ("100m*29/100", "29m"),
            ("1500m*29%", "434m"),
            ("100Mi*29%", "30408703999m"),
            ("100m/3*3", "99m"),
            ("1m*1.9999", "1m"),
            ("-5m/2+10m", "8m"),
            ("1Gi*33%", "354334801920m"),
            ("1Gi/3", "357913941333m"),
            ("1Gi*10%", "107374182400m"),
            ("1.5m*2", "4m"),
            ("100m + 0.0005", "100m"),
            ("100m - 0.0019", "99m"),
        ],
    );
}

#[test]
fn the_larger_and_the_smaller() {
    assert_table(
        "",
        &[
            ("max(1Gi,1073741824)", "1Gi"),
            ("min(1Gi,1073741824)", "1Gi"),
            ("min(1073741824,1Gi)", "1073741824"),
            ("MAX(1, 2) + Min(3, 4)", "5"),
            ("max(-1m,0)", "0"),
            ("max(-1,-2) + 1", "0"),
        ],
    );
}

#[test]
fn variables() {
    let table = [
        ("cpu", "cpu=100m", "100m"),
        ("CPU*2", "cpu=100m", "200m"),
        ("max(cpu, 200m)", "cpu=100m", "200m"),
        (
            "min(max(max(max(0.5,0.5*cpu),cpu-1.0),cpu-1.0),3.0)",
            "cpu=0.5",
            "500m",
        ),
        ("max(0.25, cpu)", "cpu=100m", "250m"),
        ("max(cpu, 0.75)", "cpu=500m", "750m"),
        ("min(0.8, cpu)", "cpu=1.0", "800m"),
        ("min(cpu, 1.5)", "cpu=2.0", "1500m"),
        ("max(min(2*cpu,3.0-cpu),2*cpu-3.0)", "cpu=1.5", "1500m"),
        ("memory + 100Mi", "memory=200Mi", "300Mi"),
        ("0.5 * memory + max(0, memory-2Gi)", "memory=8Gi", "10Gi"),
        ("(cpu1 + cpu2) * 50%", "cpu1=200m cpu2=400m", "300m"),
        ("max(cpu1, cpu2) * 50%", "cpu1=200m cpu2=400m", "200m"),
        (
            "cpu - 100m",
            "cpu=50m",
            "ERR calculation result is negative: -50m",
        ),
        ("cpu * 2", "cpu=#100", "200"),
        ("max(cpu, 50)", "cpu=#100", "100"),
        ("memory * 50%", "memory=512Mi", "256Mi"),
        ("memory - 100Mi", "memory=512Mi", "412Mi"),
        ("cpu*50%", "cpu=333m", "166m"),
        ("cpu*50%", "cpu=1m", "0"),
        ("cpu*50%", "cpu=1500M", "750M"),
        ("memory*50%", "memory=2Ki", "1Ki"),
        ("memory*50%", "memory=1e9", "500e6"),
        ("memory*100%", "memory=1.5Gi", "1536Mi"),
        ("memory*10%", "memory=1023", "102300m"),
        ("memory*33.3%", "memory=100Mi", "34917580799m"),
        ("memory+0.5", "memory=1Gi", "1073741824500m"),
        ("memory-1Gi", "memory=1Gi", "0"),
        (
            "memory-2Gi",
            "memory=1Gi",
            "ERR calculation result is negative: -1Gi",
        ),
    ];
    for (text, variables, expected) in table {
        assert_eq!(told(text, variables), expected, "{text} with {variables}");
    }
}

/// The fifth story of the proposal, at the points of its figure and between them.
#[test]
fn a_piecewise_linear_formula() {
    let story = Formula::parse("0.5*cpu - 0.3*max(0, cpu-4) + 0.3*max(0, cpu-8)").unwrap();
    let points = [
        ("0", "0"),
        ("100m", "50m"),
        ("1", "500m"),
        ("2", "1"),
        ("4", "2"),
        ("5", "2200m"),
        ("6", "2400m"),
        ("8", "2800m"),
        ("10", "3800m"),
        ("12", "4800m"),
        ("16", "6800m"),
        ("3333m", "1666m"),
        ("7777m", "2755m"),
    ];
    for (cpu, expected) in points {
        let cpu = Value::Quantity(cpu.parse().unwrap());
        assert_eq!(
            story.evaluate(&[("cpu", cpu.clone())]).unwrap().to_string(),
            expected,
            "{cpu}"
        );
    }
    assert_eq!(story.variables().collect::<Vec<_>>(), ["cpu"; 3]);
}

/// A number is written into a pod as thousandths, for memory too.
#[test]
fn numbers_become_quantities() {
    for (text, written) in [
        ("1000", "1k"),
        ("0.5", "500m"),
        ("-0", "0"),
        ("0.0009", "0"),
        ("29%", "290m"),
    ] {
        let value = evaluated(text, "").unwrap();
        assert_eq!(value.into_quantity().unwrap().to_string(), written, "{text}");
    }
}

/// Amounts are not known when a SidecarSet is validated, kinds are (`DESIGN.md` 4).
#[test]
fn kinds_are_checked_without_amounts() {
    let check = |text: &str| Formula::parse(text).and_then(|formula| formula.check(&["cpu"]));
    for text in [
        "cpu*50%",
        "cpu-2",
        "2*cpu-3",
        "cpu-100Mi",
        "max(cpu-100m, 0)",
        "200m",
        "cpu/(3-1)",
        "min(cpu, 1e3)",
        "-cpu",
    ] {
        assert_eq!(check(text), Ok(Kind::Quantity), "{text}");
    }
    for text in ["1", "50%", "max(1, 2)"] {
        assert_eq!(check(text), Ok(Kind::Number), "{text}");
    }
    for (text, error) in [
        ("cpu*cpu", "multiplication of two quantities"),
        ("10m*cpu", "multiplication of two quantities"),
        ("1/cpu", "division by quantity"),
        ("cpu/(1-1)", "division by zero"),
        ("cpu + memory", "undefined variable: memory"),
        ("-100m", "calculation result is negative: -100m"),
        ("min(cpu, 1e300)", "the quantity is out of range"),
        ("max(cpu)", "max function requires exactly 2 arguments, got 1"),
        ("2cpu", "\"2cpu\" is not a number"),
    ] {
        let told = check(text).unwrap_err().to_string();
        assert!(told.starts_with(error), "{text}: {told}");
    }
}

#[test]
fn a_formula_that_never_has_a_value_is_not_read() {
    for text in ["10/0", "40m*2m", "foo(1,2)", "1K", "-1", "1e3Mi", "cpu + 1e999"] {
        assert!(Formula::parse(text).is_err(), "{text}");
    }
    for text in ["cpu/memory", "nobody", "cpu*cpu", "-cpu"] {
        assert!(Formula::parse(text).is_ok(), "{text}");
    }
}
