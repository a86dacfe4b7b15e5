use super::*;

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// What a text prints as when it comes back, and once its spelling is lost.
#[test]
fn texts_print_in_lowest_terms() {
    let cases = [
        // text, printed, canonical
        ("0", "0", "0"),
        ("-0.0", "0", "0"),
        ("100m", "100m", "100m"),
        ("1500m", "1500m", "1500m"),
        ("1000m", "1", "1"),
        ("0.5", "500m", "500m"),
        (".5", "500m", "500m"),
        ("1000", "1k", "1k"),
        ("1536", "1536", "1536"),
        ("128Mi", "128Mi", "128Mi"),
        ("1024Mi", "1Gi", "1Gi"),
        ("1.5Gi", "1536Mi", "1536Mi"),
        ("0.5Ki", "512", "512"),
        ("0.1Ki", "102400m", "102400m"),
        ("7E2", "700", "700"),
        ("1e9", "1e9", "1e9"),
        ("1E9", "1E9", "1e9"),
        ("1e19", "10e18", "10e18"),
        ("1e-100", "1e-9", "1e-9"),
        ("-1.0000000001", "-1000000001n", "-1000000001n"),
        ("123456789n", "123456789n", "123456789n"),
        // Spelling survives where Kubernetes lets it.
        ("00100m", "00100m", "100m"),
        ("1.500k", "1.500k", "1500"),
        ("0100Mi", "0100Mi", "100Mi"),
        ("99.", "99.", "99"),
        ("+58Ki", "+58Ki", "58Ki"),
        ("+512Ki", "512Ki", "512Ki"),
        // A binary suffix caps at an int64 of whole units.
        ("8Ei", "9223372036854775807", "9223372036854775807"),
        ("-10000Ei", "-9223372036854775807", "-9223372036854775807"),
        (
            "9223372036854775808",
            "9223372036854775808",
            "9223372036854775808",
        ),
    ];
    for (text, printed, canonical) in cases {
        assert_eq!(quantity(text).to_string(), printed, "{text}");
        assert_eq!(quantity(text).canonical().to_string(), canonical, "{text}");
        assert_eq!(
            (&quantity(text) + &Quantity::default()).to_string(),
            canonical,
            "{text}"
        );
    }
}

#[test]
fn bad_texts_are_refused_in_kubernetes_words() {
    let format = [
        "", " ", "1 ", " 1", "1..2", "1.2.3", "1e3Mi", "1e1.5", "0x10", "1_000", "NaN", "inf", "1µ", "１",
        "..",
    ];
    let suffix = [
        "1K",
        "1ki",
        "1e",
        "1e+",
        "1ei",
        "1MB1",
        "1i",
        "--1",
        "+-1",
        "1-",
        "1m1",
        "1Mie5",
        "1e9223372036854775808",
    ];
    let numeric = ["Pi", "-.Ei", "e-10"];
    let long = [
        "1e10001",
        "1e2147483647",
        "1e9223372036854775807",
        "12345678901234567890e99999",
    ];
    for (texts, error) in [
        (&format[..], QuantityError::Format),
        (&suffix[..], QuantityError::Suffix),
        (&numeric[..], QuantityError::Numeric),
        (&long[..], QuantityError::TooLong),
    ] {
        for text in texts {
            // `B` is no suffix letter, so 1MB1 fails earlier than the others of its row.
            let error = if *text == "1MB1" {
                QuantityError::Format
            } else {
                error
            };
            assert_eq!(text.parse::<Quantity>(), Err(error), "{text:?}");
        }
    }
}

#[test]
fn no_digits_are_a_zero_as_in_kubernetes() {
    for text in [
        "+",
        "-",
        ".",
        "-.",
        "m",
        "Ki",
        "e3",
        ".e3",
        "0e999999999",
        "0e-999999999",
        "-0Ei",
    ] {
        assert!(quantity(text).is_zero(), "{text:?}");
        assert_eq!(quantity(text).to_string(), "0", "{text:?}");
        assert_eq!(quantity(text).approximate_f64().to_bits(), 0, "{text:?}");
    }
}

#[test]
fn long_numbers_are_bounded() {
    let nines = "9".repeat(10_000);
    assert_eq!(quantity(&nines).to_string(), nines);
    assert_eq!(
        format!("{nines}9").parse::<Quantity>(),
        Err(QuantityError::TooLong)
    );
    assert!(quantity(&format!("{}1", "0".repeat(100_000))).same_value(&quantity("1")));
    assert_eq!(quantity("1e-9223372036854775808").to_string(), "1e-9");
}

/// Hundreds of thousands of these are read at start.
#[test]
fn everyday_quantities_hold_nothing_on_the_heap() {
    assert!(size_of::<Quantity>() <= 48);
    for text in [
        "0",
        "1",
        "100m",
        "0.5",
        "128Mi",
        "1024Mi",
        "123456789n",
        "97656250Ki",
        "1e3",
        "2.25",
        "4G",
    ] {
        let q = quantity(text);
        assert!(
            q.spelling.is_none() && q.amount.digits.to_i64().is_some(),
            "{text}"
        );
    }
}

#[test]
fn conversions_round_away_from_zero() {
    let cases = [
        // text, milli, units, whole milli, whole units, rounded up
        ("123456789n", Some(124), Some(1), false, false, "1"),
        ("1.1", Some(1100), Some(2), true, false, "2"),
        ("-1.1Ki", Some(-1_126_400), Some(-1127), true, false, "-1127"),
        ("-2.470614646m", Some(-3), Some(-1), false, false, "-1"),
        ("-3.15Ki", Some(-3_225_600), Some(-3226), true, false, "-3226"),
        ("2k", Some(2_000_000), Some(2000), true, true, "2k"),
        ("+58Ki", Some(59_392_000), Some(59_392), true, true, "+58Ki"),
        (
            "9223372036854775807",
            None,
            Some(i64::MAX),
            true,
            true,
            "9223372036854775807",
        ),
        (
            "-9223372036854775808m",
            Some(i64::MIN),
            Some(-9_223_372_036_854_776),
            true,
            false,
            "-9223372036854776",
        ),
        ("10E", None, None, true, true, "10E"),
        ("1e100", None, None, true, true, "10e99"),
    ];
    for (text, milli, units, whole_milli, whole_units, rounded) in cases {
        let q = quantity(text);
        assert_eq!(
            (
                q.milli(),
                q.units(),
                q.is_whole_milli(),
                q.is_whole_units(),
                q.rounded_up_to_units().to_string()
            ),
            (milli, units, whole_milli, whole_units, rounded.to_owned()),
            "{text}"
        );
    }
}

/// What Kubernetes 1.36 answers, or `None` where its answer has nothing to do with the amount.
#[test]
fn thousandths_below_zero_are_those_of_kubernetes() {
    let cases = [
        ("0", "2.0001m", Some(-3)),
        ("0", "2.0000001m", Some(-1)),
        ("0", "2.470614646m", Some(-1)),
        ("0", "0.0003Ki", Some(-306)),
        ("2.5m", "3.3Ki", Some(-3_379_196)),
        ("1Ki", "2.5Ki", Some(-1_536_000)),
        ("1Gi", "10.5Gi", None),
        ("2.0000001m", "20Gi", None),
        ("0", "27.826Ti", None),
        ("0Pi", "1.12129245k", Some(-1_121_291)),
        ("100000Pi", "100000000Ti", Some(0)),
        ("10.5Gi", "1Gi", Some(10_200_547_328_000)),
        ("0.0003Ki", "0", Some(308)),
        ("0", "10P", None),
    ];
    for (a, b, milli) in cases {
        assert_eq!(
            (&quantity(a) - &quantity(b)).milli_as_kubernetes(),
            milli,
            "{a} - {b}"
        );
    }
}

#[test]
fn sums_take_the_left_format_unless_it_is_zero() {
    let cases = [
        ("490Mi", "47M", "560802240", "466802240"),
        ("47M", "490Mi", "560802240", "-466802240"),
        ("2678Mi", "1250Mi", "3928Mi", "1428Mi"),
        ("0", "1Ki", "1Ki", "-1Ki"),
        ("0Ki", "1e3", "1e3", "-1e3"),
        ("1e3", "0Ki", "1e3", "1e3"),
        ("+1Ki", "0", "1Ki", "1Ki"),
        ("100m", "123456789n", "223456789n", "-23456789n"),
        (
            "9223372036854775807",
            "1",
            "9223372036854775808",
            "9223372036854775806",
        ),
        (
            "1e40",
            "1",
            "10000000000000000000000000000000000000001",
            "9999999999999999999999999999999999999999",
        ),
    ];
    for (a, b, sum, difference) in cases {
        let (a, b) = (quantity(a), quantity(b));
        assert_eq!(
            ((&a + &b).to_string(), (&a - &b).to_string()),
            (sum.to_owned(), difference.to_owned()),
            "{a} {b}"
        );
    }
}

#[test]
fn parts_of_a_byte_are_decimal() {
    let cases = [
        ("0.0009765624Ki", Format::DecimalSi),
        ("-0.0000000000000001Ei", Format::BinarySi),
        ("-0.0000000000000000001Ei", Format::DecimalSi),
        ("0.0009765625Ki", Format::BinarySi),
        ("0.0Ki", Format::BinarySi),
        ("0.1Ki", Format::BinarySi),
    ];
    for (text, format) in cases {
        assert_eq!(quantity(text).format(), format, "{text}");
    }
}

#[test]
fn equality_is_of_text_and_order_is_of_amounts() {
    assert_eq!(quantity("1Gi"), quantity("1024Mi"));
    assert_eq!(quantity("0.5"), quantity("500m"));
    assert_ne!(quantity("1Gi"), quantity("1073741824"));
    assert_ne!(quantity("1Gi"), quantity("+1Gi"));
    assert!(quantity("1Gi").same_value(&quantity("1073741824")));
    assert_eq!(
        quantity("1Gi").max_value(quantity("1073741824")).to_string(),
        "1Gi"
    );
    assert_eq!(quantity("1Gi").min_value(quantity("1G")).to_string(), "1G");
    assert!(quantity("-1e500").cmp_value(&quantity("1n")).is_lt());
    assert!(quantity("1e500").cmp_value(&quantity("1e499")).is_gt());
}

#[test]
fn doubles_are_those_of_kubernetes() {
    let cases = [
        ("664.000u", 0.000_664_000_000_000_000_1),
        ("96.6E0", 96.600_000_000_000_01),
        ("879.4Ti", 966_910_525_466_214.5),
        ("999Ti", 1.098_412_116_148_224_1e15),
        ("9e33", 9.000_000_000_000_001e33),
        ("1e400", f64::INFINITY),
        ("-128Mi", -134_217_728.0),
    ];
    for (text, double) in cases {
        assert_eq!(
            quantity(text).approximate_f64().to_bits(),
            f64::to_bits(double),
            "{text}"
        );
    }
}

#[test]
fn json_is_a_string_or_a_number() {
    let cases = [
        (r#""100m""#, r#""100m""#),
        (r#"" 128Mi ""#, r#""128Mi""#),
        ("1", r#""1""#),
        ("-2000", r#""-2k""#),
        ("18446744073709551615", r#""18446744073709551615""#),
        ("0.5", r#""500m""#),
        ("1e-12", r#""1n""#),
        ("null", r#""0""#),
    ];
    for (json, written) in cases {
        let q: Quantity = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&q).unwrap(), written, "{json}");
    }
    let error = serde_json::from_str::<Quantity>(r#""1K""#)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with(r#"unable to parse quantity's suffix, not "1K""#),
        "{error}"
    );
    for json in ["true", "[]", "{}", r#""""#] {
        assert!(serde_json::from_str::<Quantity>(json).is_err(), "{json}");
    }
}

#[test]
fn k8s_openapi_quantities_convert_both_ways() {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
    assert_eq!(Quantity::try_from(&Wire("1024Ki".into())), Ok(quantity("1Mi")));
    assert_eq!(Quantity::try_from(&Wire("1K".into())), Err(QuantityError::Suffix));
    assert_eq!(Wire::from(quantity("1024Ki")), Wire("1Mi".into()));
}

#[test]
fn units_come_from_quantities_and_go_back() {
    assert_eq!(MilliCpu::from_quantity(&quantity("123456789n")), MilliCpu(124));
    assert_eq!(MilliCpu(1500).to_quantity(), quantity("1500m"));
    assert_eq!(MilliCpu(2000).to_quantity().to_string(), "2");
    assert_eq!(Bytes::from_quantity(&quantity("1.1Ki")), Bytes(1127));
    assert_eq!(Bytes(268_435_456).to_quantity(), quantity("256Mi"));
    assert_eq!(Bytes(1000).to_quantity().to_string(), "1k");
    assert_eq!(
        Bytes(268_435_456).to_quantity_as(Format::DecimalSi).to_string(),
        "268435456"
    );
    assert_eq!(Bytes::from_quantity(&quantity("100E")), Bytes::MAX);
    assert_eq!(Bytes::from_quantity(&quantity("-100E")), Bytes(i64::MIN));
    assert_eq!(Bytes::checked_from_quantity(&quantity("100E")), None);
    assert_eq!(Bytes::MAX.saturating_add(Bytes(1)), Bytes::MAX);
    assert_eq!(Bytes::MAX.checked_add(Bytes(1)), None);
    assert_eq!(MilliCpu(5).saturating_sub(MilliCpu(7)), MilliCpu(-2));
    assert_eq!(MilliCpu(i64::MIN).checked_sub(MilliCpu(1)), None);
    assert!(MilliCpu::ZERO.is_zero() && !Bytes(1).is_zero());
}

/// The proportional limit and the pod rule (`spec/vpa.md` 4.6, 4.7).
#[test]
fn ratios_are_exact_and_say_when_they_overflow() {
    let fits = |value| {
        Some(Scaled {
            value: MilliCpu(value),
            overflowed: false,
        })
    };
    let cases = [
        (150, 250, 100, Rounding::Floor, fits(375)),
        (100, 1, 3, Rounding::Floor, fits(33)),
        (100, 1, 3, Rounding::Ceil, fits(34)),
        (99, 1, 3, Rounding::Ceil, fits(33)),
        (-100, 1, 3, Rounding::Floor, fits(-34)),
        (-100, 1, 3, Rounding::Ceil, fits(-33)),
        (100, 1, -3, Rounding::Floor, fits(-34)),
        (i64::MAX, i64::MAX, i64::MAX, Rounding::Floor, fits(i64::MAX)),
        (
            i64::MAX,
            2,
            1,
            Rounding::Floor,
            Some(Scaled {
                value: MilliCpu::MAX,
                overflowed: true,
            }),
        ),
        (
            i64::MIN,
            -1,
            1,
            Rounding::Floor,
            Some(Scaled {
                value: MilliCpu::MAX,
                overflowed: true,
            }),
        ),
        (100, 1, 0, Rounding::Floor, None),
    ];
    for (value, numerator, denominator, rounding, expected) in cases {
        assert_eq!(
            MilliCpu(value).scaled(MilliCpu(numerator), MilliCpu(denominator), rounding),
            expected,
            "{value} × {numerator} ÷ {denominator}"
        );
    }
}
