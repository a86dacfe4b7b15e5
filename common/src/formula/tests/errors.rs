//! What is said of formulas without a value (`spec/sidecarset.md` 3.4, 3.8), and what only we say (`DESIGN.md` 4).

use super::*;
use crate::formula::{Fault, Formula, MAX_DEPTH, MAX_LENGTH, Stricter};

#[test]
fn syntax_errors_have_kruises_columns() {
    let table = [
        ("", 1, 1),
        ("   ", 1, 4),
        ("2 + @", 1, 6),
        ("(2 + 3", 1, 7),
        ("()", 1, 3),
        ("+5", 1, 2),
        ("max()", 1, 6),
        ("max(10, 20, 30)", 1, 12),
        ("max(,1)", 1, 6),
        ("max(1;2)", 1, 7),
        ("cpu%", 1, 5),
        ("(cpu)%", 1, 7),
        ("50 %", 1, 5),
        ("5..5", 1, 5),
        ("5%%", 1, 4),
        ("1e3e2", 1, 6),
        ("1eKi", 1, 5),
        ("1Ei", 1, 4),
        ("2 3", 1, 4),
        ("2(3)", 1, 3),
        ("2**3", 1, 4),
        ("_cpu", 1, 2),
        ("cpu max 1", 1, 8),
        ("45.35-\n*1", 2, 2),
        ("(1\n+ 2", 2, 4),
        ("(1\0", 1, 4),
        ("\0 1", 1, 2),
        ("1e3e", 1, 5),
        ("50%e", 1, 5),
        ("50%E9 + 1", 1, 6),
        ("2 + 1e%m", 1, 9),
    ];
    for (text, line, column) in table {
        let expected = format!("ERR parse error: syntax error at line {line}, col {column}");
        assert_eq!(told(text, "cpu=100m"), expected, "{text:?}");
    }
}

#[test]
fn errors_of_values() {
    let table = [
        ("10 / 0", "division by zero"),
        ("10 / -0", "division by zero"),
        ("cpu / 0%", "division by zero"),
        ("max(10, 20 / 0)", "division by zero"),
        ("2 / 40m", "division by quantity"),
        ("1 / 0m", "division by quantity"),
        ("cpu / cpu", "division by quantity"),
        ("40m * 2m", "multiplication of two quantities"),
        ("unknown(1, 2)", "unknown function: unknown"),
        ("CPU(1)", "unknown function: CPU"),
        ("max(10)", "max function requires exactly 2 arguments, got 1"),
        ("MIN(10)", "min function requires exactly 2 arguments, got 1"),
        ("Memory", "undefined variable: memory"),
        ("min", "undefined variable: min"),
        ("1 + é", "undefined variable: \u{fffd}"),
        ("ê", "undefined variable: ê"),
        ("-10", "calculation result is negative: -10"),
        ("50m - 100m", "calculation result is negative: -50m"),
        ("-1e-7", "calculation result is negative: -1e-07"),
        (
            "1e3Mi",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (".Pi", "unable to parse numeric part of quantity"),
    ];
    for (text, error) in table {
        assert_eq!(told(text, "cpu=100m"), format!("ERR {error}"), "{text:?}");
    }
}

/// An error of a value comes before a syntax error behind it, and the last of several counts.
#[test]
fn of_several_errors_kruises_is_told() {
    let table = [
        ("10/0 )", "division by zero"),
        ("10/0+foo", "undefined variable: foo"),
        ("foo+10/0", "division by zero"),
        ("maxcpu,1568m)", "undefined variable: maxcpu"),
        ("max 1,2", "undefined variable: max"),
        ("cpu/ G 7", "undefined variable: g"),
        ("foo(10/0 @", "division by zero"),
        ("mi(4e4, 76E6m)", "unknown function: mi"),
        ("max(foo)", "max function requires exactly 2 arguments, got 1"),
        ("2cpu + foo", "undefined variable: foo"),
        ("2cpu +", "parse error: syntax error at line 1, col 7"),
    ];
    for (text, error) in table {
        assert_eq!(told(text, "cpu=100m"), format!("ERR {error}"), "{text:?}");
    }
}

/// What comes of a failure is no further error, though Kruise divides by the 0 that it takes `2cpu` for.
#[test]
fn a_failure_causes_no_other() {
    for text in ["1/2cpu", "2cpu*1m*1m", "1K/1m", "max(2cpu, 1m)/0%", "-2cpu-5"] {
        let error = evaluated(text, "").unwrap_err();
        assert!(
            matches!(error.stricter(), Some(Stricter::UnparsableNumber(_))),
            "{text}: {error}"
        );
    }
}

/// An error that is told instead of one that only we have says so, because Kruise goes on with a 0 in its place.
#[test]
fn what_only_we_refuse_is_never_lost() {
    let stricter = |text: &str| {
        let error = evaluated(text, "cpu=100m").unwrap_err();
        let first = error.first_stricter().map(|first| text[first.at()].to_owned());
        (error.stricter().is_some(), first)
    };
    assert_eq!(stricter("2cpu + 1K"), (true, Some("2cpu".to_owned())));
    assert_eq!(stricter("2cpu / foo"), (false, Some("2cpu".to_owned())));
    assert_eq!(stricter("1/1K )"), (false, Some("1K".to_owned())));
    assert_eq!(stricter("1/0 )"), (false, None));
}

/// Kruise takes each of these for 0.
#[test]
fn what_is_no_number_is_refused() {
    for token in [
        "1K", "100MB", "100Xi", "2cpu", "0.5cpu", "1u", "1n", "1e", "1e+", "1E", ".", "50%5", "50%foo",
        "50%m", "0xabc", "1e+cpu", "1e%", "1e%+5", "1e3%m", "7ê",
    ] {
        let expected = Fault::Stricter(Stricter::UnparsableNumber(token.to_owned()));
        for text in [
            token.to_owned(),
            format!("cpu + {token}"),
            format!("-({token}*2) / 1"),
        ] {
            let error = evaluated(&text, "cpu=100m").unwrap_err();
            assert_eq!(error.fault(), &expected, "{text}");
            assert_eq!(&text[error.at()], token, "{text}");
        }
    }
}

/// Kruise computes with infinity, wraps around, or collapses to 0.
#[test]
fn what_is_out_of_range_is_refused() {
    let table = [
        ("1e400", Stricter::NotFinite),
        ("1e308*10", Stricter::NotFinite),
        ("min(1e400, 5)", Stricter::NotFinite),
        ("1e308+1e308", Stricter::NotFinite),
        ("1/1e-320", Stricter::NotFinite),
        ("10P*1", Stricter::Overflow),
        ("9Pi*1", Stricter::Overflow),
        ("9223372036854775807m*1", Stricter::Overflow),
        ("5e4 * 265Gi + 1e300*cpu", Stricter::Overflow),
        ("cpu/1e-320", Stricter::Overflow),
        ("cpu + 1e16", Stricter::Overflow),
        ("min(cpu, 1e16)", Stricter::Overflow),
        ("-27.826Ti * 124%", Stricter::Overflow),
    ];
    for (text, expected) in table {
        let error = evaluated(text, "cpu=100m").unwrap_err();
        assert_eq!(error.stricter(), Some(&expected), "{text}");
    }
    assert_eq!(
        told("10P + 1", "").as_str(),
        "10000000000000001",
        "sums have no bound"
    );
    let huge = evaluated("cpu + 1", "cpu=1e200").unwrap_err();
    assert_eq!(huge.stricter(), Some(&Stricter::Overflow));
    let number = Value::Number(1e16).into_quantity();
    assert_eq!(number, Err(Stricter::Overflow));
    assert_eq!(Value::Number(f64::NAN).into_quantity(), Err(Stricter::NotFinite));
    assert_eq!(told("cpu", "cpu=#inf"), format!("ERR {}", Stricter::NotFinite));
}

#[test]
fn length_and_depth_are_bounded() {
    let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(told(&nested(MAX_DEPTH), ""), "1");
    let error = evaluated(&nested(MAX_DEPTH + 1), "").unwrap_err();
    assert_eq!(error.stricter(), Some(&Stricter::TooDeep));
    assert_eq!(error.at(), MAX_DEPTH..MAX_DEPTH + 1);

    let long = |length: usize| format!("{}1", " ".repeat(length - 1));
    assert_eq!(told(&long(MAX_LENGTH), ""), "1");
    let error = Formula::parse(&long(MAX_LENGTH + 1)).unwrap_err();
    assert_eq!(error.stricter(), Some(&Stricter::TooLong));
    assert_eq!(
        error.caret().to_string(),
        "\n^ the formula is longer than 1024 bytes"
    );

    let signs = "-".repeat(MAX_LENGTH - 2) + "1";
    let chain = "cpu+1*".repeat(150) + "cpu";
    let tower = "1+2*max(1,1+2*(".repeat(MAX_DEPTH / 2) + "1" + &"))".repeat(MAX_DEPTH / 2);
    assert_eq!(told(&signs, ""), "1");
    assert_eq!(told(&chain, "cpu=1"), "151");
    assert_eq!(told(&tower, ""), "3.6893488147419103e+19");
}

#[test]
fn carets_show_where() {
    let table = [
        (
            "cpu*50% +",
            "cpu*50% +\n         ^ expected a number, a quantity, a variable, max, min, \"(\" or \"-\", found the end",
        ),
        (
            "2 + @",
            "2 + @\n    ^ expected a number, a quantity, a variable, max, min, \"(\" or \"-\", found \"@\"",
        ),
        (
            "cpu cpu",
            "cpu cpu\n    ^^^ expected an operator or the end, found \"cpu\"",
        ),
        (
            "max(1",
            "max(1\n     ^ expected an operator or \",\", found the end",
        ),
        ("(1,", "(1,\n  ^ expected an operator or \")\", found \",\""),
        ("max(1, 2 / 0)", "max(1, 2 / 0)\n         ^ division by zero"),
        ("memory*2", "memory*2\n^^^^^^ undefined variable: memory"),
        ("1 +\n\tfoo(1)", "\tfoo(1)\n\t^^^ unknown function: foo"),
        (
            "cpu - 1",
            "cpu - 1\n^^^^^^^ calculation result is negative: -900m",
        ),
        ("1 + é", "1 + é\n    ^ undefined variable: \u{fffd}"),
        ("ê + \u{7}\u{1b}", "ê +   \n^ undefined variable: ê"),
    ];
    for (text, drawn) in table {
        let error = evaluated(text, "cpu=100m").unwrap_err();
        assert_eq!(error.caret().to_string(), drawn, "{text:?}");
    }
    assert_eq!(
        evaluated("(1", "").unwrap_err().to_string(),
        "parse error: syntax error at line 1, col 3: expected an operator or \")\", found the end"
    );
}
