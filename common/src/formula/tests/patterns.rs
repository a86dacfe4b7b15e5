//! Regular expressions are Go's, found anywhere in a name.

use crate::formula::pattern::{PatternError, compile};

fn found(pattern: &str, name: &str) -> bool {
    compile(pattern).unwrap().is_match(name)
}

#[test]
fn they_are_found_anywhere_unless_anchored() {
    for (pattern, name, expected) in [
        ("app", "myapp1", true),
        ("^app", "myapp1", false),
        ("v[48]$", "large-engine-v4", true),
        ("v[48]$", "large-engine-v16", false),
        ("^large.engine.v.*$", "large-engine-v8", true),
        ("(?i)APP", "app1", true),
        ("", "anything", true),
        ("^(app1|web)$", "web", true),
        ("^(?P<which>app1|web)$", "app2", false),
    ] {
        assert_eq!(found(pattern, name), expected, "{pattern} in {name}");
    }
}

#[test]
fn what_go_spells_differently_means_what_it_means_there() {
    for (pattern, name, expected) in [
        (r"^\Qa.b\E$", "a.b", true),
        (r"^\Qa.b\E$", "axb", false),
        (r"\Qa.", "a.", true),
        ("^a{,3}$", "a{,3}", true),
        ("^a{,3}$", "aa", false),
        ("^a{x}$", "a{x}", true),
        ("^a{2,3}$", "aaa", true),
        ("^[a&&b]+$", "a&b", true),
        ("^[[a]$", "[", true),
        ("^[[:alpha:]]+$", "abc", true),
        ("^[[:^alpha:]]+$", "abc", false),
        ("^[]a-]+$", "]-a", true),
        (r"^[\d-z]+$", "1-z", true),
        (r"^\141\x62\x{63}$", "abc", true),
        (r"\<", "a<b", true),
        (r"\bapp\b", "my-app", true),
        ("(?ii-s:APP)", "app", true),
        ("a(?)b", "ab", true),
    ] {
        assert_eq!(found(pattern, name), expected, "{pattern} in {name}");
    }
}

#[test]
fn what_go_refuses_is_refused() {
    for pattern in [
        "[bad(",
        "\\",
        "(?!a)",
        "(?=a)",
        "*x",
        "(?P<x>",
        "a{2,1}",
        "a{1001}",
        "a**",
        "a+*",
        "a{2}{3}",
        "[z-a]",
        r"\1",
        r"\8",
        r"\Z",
        r"\C",
        r"\u0041",
        r"\h",
        "(?x)a",
        "(?P<a>.)(?P<a>.)",
        "(?P<a-b>.)",
        "[[:foo:]]",
        "(",
        ")",
        "a)",
        r"\x",
        r"\x{}",
        r"\x{110000}",
        "(?i",
        "(?-)",
        "[a",
    ] {
        let error = compile(pattern).expect_err(pattern);
        assert!(matches!(error, PatternError::Syntax(_)), "{pattern}: {error}");
    }
}

#[test]
fn their_size_is_bounded() {
    let long = "a".repeat(1025);
    for pattern in [long.as_str(), r"\pL{1000}", "(?:(?:a{1000}){1000}){1000}"] {
        assert_eq!(
            compile(pattern).unwrap_err(),
            PatternError::TooLarge,
            "{pattern:.30}"
        );
    }
    assert!(compile(&"(".repeat(1000)).is_err());
}
