//! The items of a Kubernetes list, found in its text while that comes in, so that a list of any length takes the memory of
//! one item.

/// Looks for the objects of the array `items` in the chunks of a list.
#[derive(Debug, Default)]
pub(crate) struct Items {
    place: Place,
    /// How many objects and arrays are open.
    depth: usize,
    string: Option<Text>,
    /// The name of the member of the list that comes or came last.
    key: Vec<u8>,
    /// The beginning of an item whose end is in a later chunk.
    begun: Vec<u8>,
    listed: bool,
}

/// Where in the list the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before its brace.
    #[default]
    Before,
    /// Where a name or a comma may come.
    Key,
    /// Where the value of a member comes.
    Value,
    /// In the array of items, between two of them.
    Between,
    /// In an item.
    Item,
    /// Behind it all.
    After,
}

/// Inside a string: what the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Plain,
    Escaped,
}

/// The text is no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoList {
    #[error("not a list: it does not begin with a brace, or something comes after its last one")]
    NoObject,
    #[error("not a list: there are no items in it")]
    NoItems,
    #[error("not a list: an item is no object")]
    NoItem,
    #[error("the list breaks off")]
    BrokenOff,
}

/// The names of members are no longer than this where they matter.
const LONGEST_KEY: usize = 8;
const ITEMS: &[u8] = b"items";
/// The depth at which items stand: in the array in the object.
const DEPTH: usize = 2;

impl Items {
    /// Takes the next chunk, and tells of each item that ends in it.
    ///
    /// # Errors
    /// When this is no list, or when `tell` says so.
    pub(crate) fn take<E: From<NoList>>(
        &mut self,
        chunk: &[u8],
        mut tell: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut start = 0;
        let mut at = 0;
        while let Some(&byte) = chunk.get(at) {
            let was = self.place;
            self.step(byte)?;
            match (was, self.place) {
                (Place::Between, Place::Item) => start = at,
                (Place::Item, Place::Between) => {
                    let end = chunk.get(start..=at).unwrap_or_default();
                    if self.begun.is_empty() {
                        tell(end)?;
                    } else {
                        self.begun.extend_from_slice(end);
                        tell(&self.begun)?;
                        self.begun.clear();
                    }
                }
                _ => {}
            }
            at += 1;
            at += self.changes_nothing(chunk.get(at..).unwrap_or_default());
        }
        if self.place == Place::Item {
            self.begun
                .extend_from_slice(chunk.get(start..).unwrap_or_default());
        }
        Ok(())
    }

    /// There are no more chunks.
    ///
    /// # Errors
    /// When this was no list, or not all of one.
    pub(crate) fn end(&self) -> Result<(), NoList> {
        match self.place {
            Place::After if self.listed => Ok(()),
            Place::After => Err(NoList::NoItems),
            Place::Before => Err(NoList::NoObject),
            _ => Err(NoList::BrokenOff),
        }
    }

    /// How many of the next bytes need no step of their own, which is most of them.
    fn changes_nothing(&self, rest: &[u8]) -> usize {
        let next = match (self.place, self.string) {
            (Place::Item | Place::Value, Some(Text::Plain)) => {
                rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))
            }
            (Place::Item, None) => rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')),
            _ => Some(0),
        };
        next.unwrap_or(rest.len())
    }

    fn step(&mut self, byte: u8) -> Result<(), NoList> {
        if let Some(text) = self.string {
            self.string = match (text, byte) {
                (Text::Plain, b'"') => None,
                (Text::Plain, b'\\') => Some(Text::Escaped),
                _ => Some(Text::Plain),
            };
            if self.string.is_some() && self.place == Place::Key && self.key.len() < LONGEST_KEY {
                self.key.push(byte);
            }
            return Ok(());
        }
        if byte.is_ascii_whitespace() {
            return Ok(());
        }
        match (self.place, byte) {
            (Place::Before, b'{') => self.place = Place::Key,
            (Place::Before | Place::After, _) => return Err(NoList::NoObject),
            (Place::Key, b':') => self.place = Place::Value,
            (Place::Value, b',') if self.depth == 1 => self.place = Place::Key,
            (Place::Value, b'[') if self.depth == 1 && self.key == ITEMS => {
                self.place = Place::Between;
                self.listed = true;
            }
            // What Go writes for an empty list.
            (Place::Value, b'n') if self.depth == 1 && self.key == ITEMS => self.listed = true,
            (Place::Between, b'{') => self.place = Place::Item,
            (Place::Between, b',') => {}
            (Place::Between, b']') => self.place = Place::Value,
            (Place::Between, _) => return Err(NoList::NoItem),
            _ => {}
        }
        match byte {
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b'"' => {
                self.string = Some(Text::Plain);
                if self.place == Place::Key {
                    self.key.clear();
                }
            }
            _ => {}
        }
        if self.place == Place::Item && self.depth == DEPTH {
            self.place = Place::Between;
        }
        if self.depth == 0 {
            self.place = Place::After;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// The items of a list that comes in chunks of this many bytes.
    fn items(text: &str, chunk: usize) -> Result<Vec<String>, NoList> {
        let mut items = Items::default();
        let mut found = Vec::new();
        for chunk in text.as_bytes().chunks(chunk) {
            items.take(chunk, |item| {
                found.push(String::from_utf8(item.to_vec()).unwrap());
                Ok::<_, NoList>(())
            })?;
        }
        items.end().map(|()| found)
    }

    #[test]
    fn items_are_found_whatever_stands_around_them() {
        for (text, expected) in [
            (r#"{"items": []}"#, vec![]),
            (r#"{"items": null}"#, vec![]),
            (r#" {"items":[{}]} "#, vec!["{}"]),
            (
                r#"{"kind": "items", "metadata": {"items": [{"a": 1}]}, "items": [{"a": "}\"{"}, {"b": [{}]}], "z": [1]}"#,
                vec![r#"{"a": "}\"{"}"#, r#"{"b": [{}]}"#],
            ),
            (
                r#"{"a": "items", "items_": [{"x": 1}], "items": [{"y": 2}]}"#,
                vec![r#"{"y": 2}"#],
            ),
        ] {
            for chunk in 1..=text.len() {
                let found = items(text, chunk).unwrap();
                assert_eq!(found, expected, "{text} by {chunk}");
            }
        }
    }

    #[test]
    fn what_is_no_list_is_told_from_an_empty_one() {
        for (text, expected) in [
            ("", NoList::NoObject),
            ("[]", NoList::NoObject),
            ("{}", NoList::NoItems),
            (r#"{"items": 1}"#, NoList::NoItems),
            (r#"{"items": [1]}"#, NoList::NoItem),
            (r#"{"items": []} {}"#, NoList::NoObject),
            (r#"{"items": [{}, {"a""#, NoList::BrokenOff),
            (r#"{"items": [{}]"#, NoList::BrokenOff),
        ] {
            assert_eq!(items(text, 3), Err(expected), "{text}");
        }
    }

    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from)
        ];
        let value = leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z\"\\\\{}]{0,6}", inner, 0..4).prop_map(|map| json!(map)),
            ]
        });
        prop::collection::btree_map("[a-z]{1,4}", value, 0..4).prop_map(|map| json!(map))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_item_is_found_once(list in prop::collection::vec(object(), 0..6), around in object(), chunk in 1_usize..40) {
            let text = json!({"apiVersion": around, "items": list, "metadata": around}).to_string();
            let found: Vec<Value> = items(&text, chunk)
                .unwrap()
                .iter()
                .map(|item| serde_json::from_str(item).unwrap())
                .collect();
            prop_assert_eq!(found, list);
        }

        #[test]
        fn no_text_is_too_odd(text in ".{0,80}", chunk in 1_usize..9) {
            let _any = items(&text, chunk);
        }
    }
}
