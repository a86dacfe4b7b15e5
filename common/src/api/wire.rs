//! How Go's JSON treats what Rust's does not: null is the same as absent, and an absent struct is its zero value.
//! Also the times of these types, which go through the border in [`crate::time`].

use super::k8s::IntOrString;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

/// Null as the type's zero value, for fields that are not an `Option`.
pub(super) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Null and the empty string as nothing: for strings that are no pointers in Go, where the two are one.
pub(super) fn non_empty<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: From<String>,
{
    let text: Option<String> = Option::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).map(T::from))
}

/// Null and absent as the empty string, for enumerations that are no pointers in Go and always written.
pub(super) fn text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<String>,
{
    nullable::<D, String>(deserializer).map(T::from)
}

/// A number or a string, where the schema sets the number no bounds: beyond 32 bits it is as large as they go.
pub(super) fn saturating_int_or_string<'de, D>(deserializer: D) -> Result<Option<IntOrString>, D::Error>
where
    D: Deserializer<'de>,
{
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(IntOrString::String(text))),
        Value::Number(number) if !number.is_f64() => {
            let int = number.as_i64().unwrap_or(i64::MAX);
            let bound = if int < 0 { i32::MIN } else { i32::MAX };
            Ok(Some(IntOrString::Int(i32::try_from(int).unwrap_or(bound))))
        }
        other => Err(D::Error::custom(format_args!(
            "{other} is neither an integer nor a string"
        ))),
    }
}

/// Whether a value is its type's zero value, which Go leaves out.
pub(super) fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Times that may be missing: nothing is written as null, which is how Go writes a zero time.
pub(super) mod optional_time {
    use crate::{api::k8s::Time, time};
    use chrono::{DateTime, Utc};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::api) fn serialize<S: Serializer>(
        value: &Option<DateTime<Utc>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(time::to_k8s).serialize(serializer)
    }

    pub(in crate::api) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<DateTime<Utc>>, D::Error> {
        let value: Option<Time> = Option::deserialize(deserializer)?;
        Ok(value.as_ref().map(time::from_k8s))
    }
}

/// Gives a `spec` the JSON of a Go struct: absent and null are the zero value, and a list is no object. The type
/// derives its fields with `#[serde(remote = "Self")]`. Without this an object without a spec, which the schemas of
/// checkpoints and SidecarSets allow, would fail every list it is in.
macro_rules! go_struct {
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Object;

                impl<'de> serde::de::Visitor<'de> for Object {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_none<E>(self) -> Result<Self::Value, E> {
                        Ok(Default::default())
                    }

                    fn visit_unit<E>(self) -> Result<Self::Value, E> {
                        Ok(Default::default())
                    }

                    fn visit_some<D: serde::Deserializer<'de>>(
                        self,
                        deserializer: D,
                    ) -> Result<Self::Value, D::Error> {
                        deserializer.deserialize_map(self)
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        map: A,
                    ) -> Result<Self::Value, A::Error> {
                        $type::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    }
                }

                deserializer.deserialize_option(Object)
            }
        }
    };
}

pub(super) use go_struct;
