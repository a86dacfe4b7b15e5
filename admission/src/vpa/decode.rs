//! JSON as Go's decoder takes it: null is absent, an absent struct is its zero value, unknown fields are ignored, and an
//! array is no object.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use common::quantity::Quantity;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

/// A struct; null is its zero value.
pub(super) fn object<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    input: D,
) -> Result<T, D::Error> {
    Ok(optional_object(input)?.unwrap_or_default())
}

/// A pointer to a struct.
pub(super) fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    Ok(Nullable::deserialize(input)?.0)
}

/// A list of structs.
pub(super) fn objects<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    input: D,
) -> Result<Vec<T>, D::Error> {
    let list: Option<Vec<Nullable<T>>> = Option::deserialize(input)?;
    let list = list.unwrap_or_default().into_iter();
    Ok(list.map(|item| item.0.unwrap_or_default()).collect())
}

/// A string.
pub(super) fn text<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

/// A pointer to a list of strings.
pub(super) fn optional_texts<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<String>>, D::Error> {
    let list: Option<Vec<Option<String>>> = Option::deserialize(input)?;
    Ok(list.map(|list| list.into_iter().map(Option::unwrap_or_default).collect()))
}

/// Amounts by resource name.
pub(super) fn amounts<'de, D: Deserializer<'de>>(input: D) -> Result<BTreeMap<String, Quantity>, D::Error> {
    let map: Option<BTreeMap<String, Amount>> = Option::deserialize(input)?;
    let map = map.unwrap_or_default().into_iter();
    Ok(map.map(|(name, amount)| (name, amount.0)).collect())
}

/// A pointer to a quantity.
pub(super) fn optional_amount<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Quantity>, D::Error> {
    let amount: Option<Amount> = Option::deserialize(input)?;
    Ok(amount.map(|amount| amount.0))
}

/// A struct, or null.
struct Nullable<T>(Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Nullable<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = Nullable<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Nullable(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|object| Nullable(Some(object)))
            }
        }

        input.deserialize_any(Object(PhantomData))
    }
}

/// A quantity: what stands there, in quotes or not, is its text, and Kubernetes has its own words for any other text.
struct Amount(Quantity);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(input)?.get();
        if raw == "null" {
            return Ok(Self(Quantity::default()));
        }
        let text = raw
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
            .unwrap_or(raw);
        text.trim().parse().map(Self).map_err(D::Error::custom)
    }
}
