//! Enumerations that survive a value nobody knows yet. A closed enum would fail a whole LIST for the one object
//! that carries a newer value, and the watch would relist for ever.

/// An enumeration of the API with the values we know and room for any other.
pub trait OpenEnum: Sized + 'static {
    /// The values we know, in the order in which the API lists them.
    const KNOWN: &'static [Self];

    /// The value as it is written in JSON.
    fn as_str(&self) -> &str;

    /// The values we know, as they are written in JSON.
    #[must_use]
    fn known_names() -> Vec<&'static str> {
        Self::KNOWN.iter().map(Self::as_str).collect()
    }
}

/// Declares an [`OpenEnum`] with its JSON, its schema and an order by the written value.
macro_rules! open_enum {
    (
        $(#[$doc:meta])*
        $vis:vis enum $name:ident {
            $( $(#[$variant_doc:meta])* $variant:ident = $text:literal, )+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $( $(#[$variant_doc])* $variant, )+
            /// A value this program does not know, as it came.
            Other(String),
        }

        impl $crate::api::OpenEnum for $name {
            const KNOWN: &'static [Self] = &[$( Self::$variant, )+];

            fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $text, )+
                    Self::Other(text) => text,
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $( $text => Self::$variant, )+
                    _ => Self::Other(text),
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                text.to_owned().into()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($crate::api::OpenEnum::as_str(self))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                use $crate::api::OpenEnum;
                self.as_str().cmp(other.as_str())
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::api::OpenEnum::as_str(self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(Self::from)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let names = <Self as $crate::api::OpenEnum>::known_names();
                schemars::json_schema!({ "type": "string", "enum": names })
            }
        }
    };
}

pub(crate) use open_enum;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    open_enum! {
        /// For the tests below.
        enum Fruit {
            /// Sorts last by name.
            Pear = "pear",
            /// Sorts first by name.
            Apple = "Apple",
        }
    }

    #[test]
    fn known_values_have_names_and_unknown_ones_are_kept() {
        assert_eq!(Fruit::from("Apple"), Fruit::Apple);
        assert_eq!(Fruit::from("apple"), Fruit::Other("apple".to_owned()));
        assert_eq!(Fruit::from(""), Fruit::Other(String::new()));
        assert_eq!(Fruit::known_names(), ["pear", "Apple"]);
    }

    #[test]
    fn the_order_is_that_of_the_written_values() {
        let mut all = vec![Fruit::Pear, Fruit::Other("fig".to_owned()), Fruit::Apple];
        all.sort();
        assert_eq!(all, [Fruit::Apple, Fruit::Other("fig".to_owned()), Fruit::Pear]);
    }

    proptest! {
        #[test]
        fn any_text_comes_back_as_it_went_in(text in "pear|Apple|.{0,12}") {
            let json = serde_json::Value::String(text);
            let fruit: Fruit = serde_json::from_value(json.clone()).unwrap();
            prop_assert_eq!(serde_json::to_value(fruit).unwrap(), json);
        }
    }
}
