//! Quantities in JSON: a string, or a plain number as some people write it; and the string type of `k8s-openapi`.

use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as K8sQuantity;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Format, Quantity, QuantityError};

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

impl TryFrom<&K8sQuantity> for Quantity {
    type Error = QuantityError;

    fn try_from(quantity: &K8sQuantity) -> Result<Self, Self::Error> {
        from_wire(&quantity.0)
    }
}

impl From<&Quantity> for K8sQuantity {
    fn from(quantity: &Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl From<Quantity> for K8sQuantity {
    fn from(quantity: Quantity) -> Self {
        Self::from(&quantity)
    }
}

/// The API server takes a quantity with spaces around it, though the parser alone does not.
fn from_wire(text: &str) -> Result<Quantity, QuantityError> {
    text.trim_matches(' ').parse()
}

struct QuantityVisitor;

impl de::Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as \"500m\" or \"128Mi\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        from_wire(text).map_err(|error| E::custom(format_args!("{error}, not {text:?}")))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_units(number, Format::DecimalSi))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
        // The shortest text that is this double is the number somebody wrote.
        self.visit_str(&number.to_string())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::default())
    }
}
