//! Parameters as queries and forms of HTTP carry them.

/// Parameters as a form carries them.
pub(crate) fn form(parameters: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in parameters {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(name);
        text.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    text.push(char::from(byte));
                }
                byte => text.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_survives_the_form() {
        let query = r#"rate(cpu{job="a b", name!=""}[1h])"#;
        assert_eq!(
            form(&[("query", query.to_owned()), ("time", "1.000".to_owned())]),
            "query=rate%28cpu%7Bjob%3D%22a%20b%22%2C%20name%21%3D%22%22%7D%5B1h%5D%29&time=1.000"
        );
    }
}
