//! The three ways in which vectors are run, and the command's manners. `make test` and `make vectors` run all there are.

use std::{fs, path::Path, process::Command};

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/vectors");

const ONE: &str = r#"{"name": "n-1", "input": {"a": "1"}, "expect": {"a": {"afterAddZero": "1", "f64": 1,
    "f64bits": "3ff0000000000000", "format": "DecimalSI", "isZero": false, "json": "1", "milliValue": "1000", "neg": "-1",
    "roundUp0": "1", "sign": 1, "string": "1", "value": "1", "wholeMilli": true, "wholeUnits": true}}}"#;

fn file(family: &str, cases: &[&str]) -> String {
    format!(
        r#"{{"family": "{family}", "source": "test", "cases": [{}]}}"#,
        cases.join(",")
    )
}

/// Exit status, last line, and everything printed.
fn command(files: &[(&str, &str)], args: &[&str]) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    command_in(dir.path(), args)
}

fn command_in(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_hack"))
        .arg("vectors")
        .arg(dir)
        .args(args)
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let last = stdout.lines().last().unwrap_or_default().to_owned();
    (output.status.code(), last, stdout + &stderr)
}

#[test]
fn a_mismatch_is_shown_and_fails() {
    let wrong = ONE
        .replace(r#""neg": "-1""#, r#""neg": "-2""#)
        .replace("n-1", "n-2");
    let wrong_value = ONE
        .replace(r#""milliValue": "1000""#, r#""milliValue": "1001""#)
        .replace("n-1", "n-3");
    let (status, last, all) = command(
        &[("q.json", &file("quantity", &[ONE, &wrong, &wrong_value]))],
        &[],
    );
    assert_eq!(
        (status, last.as_str()),
        (Some(1), "1 passed, 2 failed, 0 skipped"),
        "{all}"
    );
    let shown =
        "FAILED quantity/n-2\n  input: {\"a\":\"1\"}\n  a.neg\n    expected: \"-2\"\n    got:      \"-1\"\n";
    assert!(all.contains(shown), "{all}");
    assert!(
        all.contains("a.milliValue\n    expected: \"1001\"\n    got:      \"1000\"\n"),
        "{all}"
    );
}

#[test]
fn a_difference_without_a_quirk_fails_with_any_quirks() {
    let wrong = ONE.replace(r#""sign": 1"#, r#""sign": -1"#);
    let files = [("q.json", &*file("quantity", &[&wrong]))];
    for quirks in ["--quirks=none", "--quirks=all", "--quirks=Q8,Q10"] {
        let (status, last, all) = command(&files, &[quirks]);
        assert_eq!(
            (status, last.as_str()),
            (Some(1), "0 passed, 1 failed, 0 skipped"),
            "{all}"
        );
    }
}

/// An expression, and Kruise's answer to it: a number in bits and text.
fn expr(name: &str, text: &str, bits: &str, string: &str) -> String {
    format!(
        r#"{{"name": "{name}", "input": {{"expr": "{text}"}}, "expect": {{"kind": "number", "bits": "{bits}", "string": "{string}"}}}}"#
    )
}

#[test]
fn what_means_nothing_is_refused_and_listed() {
    let zero = "0000000000000000";
    let cases = [
        expr("n-1", "2 + 3", "4014000000000000", "5"),
        expr("n-2", "1K", zero, "0"),
        expr("n-3", "5 + 1K", "4014000000000000", "5"),
        expr("n-4", "1e400", "7ff0000000000000", "+Inf"),
        expr("n-5", "2 + 3", zero, "0"),
        expr("n-6", "5 + 1K", zero, "0"),
    ];
    let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    let (status, last, all) = command(&[("e.json", &file("expr", &cases))], &[]);
    assert_eq!(
        (status, last.as_str()),
        (Some(1), "4 passed, 2 failed, 0 skipped"),
        "{all}"
    );
    let listed = "3 stricter:\n  expr/n-2: \"1K\": unparsable number \"1K\"\n  \
                  expr/n-3: \"5 + 1K\": unparsable number \"1K\"\n  expr/n-4: \"1e400\": not finite\n";
    assert!(all.contains(listed), "{all}");
    // Not an answer to the formula, and not one to it with 0 for what is no number.
    assert!(
        all.contains("FAILED expr/n-5\n") && all.contains("FAILED expr/n-6\n"),
        "{all}"
    );
}

#[test]
fn only_what_means_nothing_is_refused() {
    let (status, _, all) = command_in(Path::new(VECTORS), &["--family=expr", "--family=policy"]);
    let counts = [
        "21 stricter:",
        ": unparsable number ",
        ": overflow\n",
        ": not finite\n",
    ]
    .map(|words| all.matches(words).count());
    assert_eq!((status, counts), (Some(0), [1, 15, 4, 2]), "{all}");
}

#[test]
fn all_is_well_in_each_of_the_three_ways() {
    let files = [
        ("q.json", &*file("quantity", &[ONE])),
        ("README.md", "not a vector"),
    ];
    for (args, expected) in [
        (&[][..], "1 passed, 0 failed, 0 skipped"),
        (&["--quirks=none"], "1 passed, 0 failed, 0 skipped"),
        (
            &["--add-native-sidecars", "--family=quantity"],
            "2 passed, 0 failed, 0 skipped",
        ),
    ] {
        let (status, last, all) = command(&files, args);
        assert_eq!((status, last.as_str()), (Some(0), expected), "{all}");
    }
}

#[test]
fn files_that_are_no_vectors_fail_and_the_others_still_run() {
    let good = file("quantity", &[ONE]);
    let bad = [
        ("{", "is not a vector file"),
        ("[]", "is not a vector file"),
        (r#"{"family": "quantity", "source": ""}"#, "is not a vector file"),
        (
            r#"{"family": "quantity", "source": "", "cases": []}"#,
            "has no cases",
        ),
        (
            r#"{"family": "quantities", "source": "", "cases": [{"name": "", "input": 1, "expect": 1}]}"#,
            "unknown family",
        ),
    ];
    for (text, reason) in bad {
        let (status, last, all) = command(&[("a.json", text), ("b.json", &good)], &[]);
        assert_eq!(
            (status, last.as_str()),
            (Some(1), "1 passed, 1 failed, 0 skipped"),
            "{text}: {all}"
        );
        assert!(all.contains(reason), "{text}: {all}");
    }
    let (status, last, all) = command(
        &[(
            "a.json",
            &file("quantity", &[r#"{"name":"x","input":5,"expect":{}}"#]),
        )],
        &[],
    );
    assert_eq!(
        (status, last.as_str()),
        (Some(1), "0 passed, 1 failed, 0 skipped"),
        "{all}"
    );
    assert!(all.contains("no answer: no input a"), "{all}");
}

#[test]
fn nothing_to_run_is_an_error() {
    for (files, args, reason) in [
        (&[][..], &[][..], "no *.json files"),
        (
            &[("q.json", &*file("quantity", &[ONE]))][..],
            &["--family=oom"][..],
            "no cases of oom",
        ),
        (
            &[("q.json", &*file("quantity", &[ONE]))][..],
            &["--family=quantities"][..],
            "unknown family \"quantities\"",
        ),
    ] {
        let (status, _, all) = command(files, args);
        assert_eq!(status, Some(1), "{all}");
        assert!(all.contains(reason), "{all}");
    }
    let (status, _, all) = command_in(Path::new("/no/such/directory"), &[]);
    assert_eq!(status, Some(1), "{all}");
    let (status, _, all) = command(&[], &["--quirks=Q1"]);
    assert_eq!(status, Some(2), "{all}");
    assert!(
        all.contains("unknown quirk \"Q1\": use all, none, or a list of Q3, "),
        "{all}"
    );
}

#[test]
fn help_teaches() {
    let output = Command::new(env!("CARGO_BIN_EXE_hack"))
        .args(["vectors", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap().replace('\n', " ");
    for word in [
        "Examples:",
        "--quirks=none",
        "--add-native-sidecars",
        "N passed, M failed, K skipped",
    ] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
}
