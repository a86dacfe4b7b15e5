//! Files with `@NAME@` places that are filled in when a cluster is made. A place that nobody fills is an error, and so
//! is a value that no place takes.

use anyhow::{Result, bail, ensure};

/// A name and what goes in its places.
type Value<'a> = (&'a str, &'a dyn std::fmt::Display);

/// Fills every place.
///
/// # Errors
/// When a place or a value is left over.
pub(super) fn fill(template: &str, values: &[Value<'_>]) -> Result<String> {
    let mut text = template.to_owned();
    for (name, value) in values {
        let place = format!("@{name}@");
        ensure!(template.contains(&place), "the template has no {place}");
        text = text.replace(&place, &value.to_string());
    }
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let is_filled = |place: &str| values.iter().any(|(name, _)| *name == place);
    if let Some(place) = template
        .split('@')
        .skip(1)
        .find(|text| is_name(text) && !is_filled(text))
    {
        bail!("nothing fills @{place}@");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_places_are_filled_or_it_says_which_not() {
        let table: [(&[Value<'_>], _); 3] = [
            (&[("A", &1), ("B", &"two")], Ok("1 two 1 $@".to_owned())),
            (&[("A", &1)], Err("nothing fills @B@".to_owned())),
            (
                &[("A", &1), ("B", &2), ("C", &3)],
                Err("the template has no @C@".to_owned()),
            ),
        ];
        for (values, expected) in table {
            let filled = fill("@A@ @B@ @A@ $@", values).map_err(|error| error.to_string());
            assert_eq!(filled, expected);
        }
    }
}
