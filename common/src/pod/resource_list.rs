//! Resource names and amounts. A pod or a VPA has many such lists of hardly more than two entries, for which a tree is the
//! wrong shape: its smallest node has room for eleven.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};

use crate::quantity::Quantity;

/// Resource name to amount, sorted by name. A map in all but its size.
#[derive(Clone, Default, PartialEq)]
pub struct ResourceList(Vec<(String, Quantity)>);

impl ResourceList {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// How many resources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The amount of a resource.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Quantity> {
        let place = self.place(name).ok()?;
        self.0.get(place).map(|(_, amount)| amount)
    }

    /// The amount of a resource, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Quantity> {
        let place = self.place(name).ok()?;
        self.0.get_mut(place).map(|(_, amount)| amount)
    }

    /// Whether a resource is there.
    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.place(name).is_ok()
    }

    /// Sets the amount of a resource, and gives the one before.
    pub fn insert(&mut self, name: String, amount: Quantity) -> Option<Quantity> {
        match self.place(&name) {
            Ok(place) => self
                .0
                .get_mut(place)
                .map(|(_, old)| std::mem::replace(old, amount)),
            Err(place) => {
                self.0.reserve_exact(1);
                self.0.insert(place, (name, amount));
                None
            }
        }
    }

    /// Takes a resource out.
    pub fn remove(&mut self, name: &str) -> Option<Quantity> {
        let place = self.place(name).ok()?;
        Some(self.0.remove(place).1)
    }

    /// Keeps those of which `keep` says yes.
    pub fn retain(&mut self, mut keep: impl FnMut(&String, &mut Quantity) -> bool) {
        self.0.retain_mut(|(name, amount)| keep(name, amount));
    }

    /// All of them.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.0.iter())
    }

    /// All of them, the amounts to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&String, &mut Quantity)> {
        self.0.iter_mut().map(|(name, amount)| (&*name, amount))
    }

    /// The names.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.iter().map(|(name, _)| name)
    }

    /// The amounts.
    pub fn values(&self) -> impl Iterator<Item = &Quantity> {
        self.iter().map(|(_, amount)| amount)
    }

    /// The amounts, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Quantity> {
        self.0.iter_mut().map(|(_, amount)| amount)
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(name))
    }
}

/// The entries of a [`ResourceList`].
#[derive(Clone, Debug)]
pub struct Iter<'a>(std::slice::Iter<'a, (String, Quantity)>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a String, &'a Quantity);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, amount)| (name, amount))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<'a> IntoIterator for &'a ResourceList {
    type Item = (&'a String, &'a Quantity);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut ResourceList {
    type Item = (&'a String, &'a mut Quantity);
    type IntoIter = std::iter::Map<
        std::slice::IterMut<'a, (String, Quantity)>,
        fn(&'a mut (String, Quantity)) -> (&'a String, &'a mut Quantity),
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut().map(|(name, amount)| (&*name, amount))
    }
}

impl IntoIterator for ResourceList {
    type Item = (String, Quantity);
    type IntoIter = std::vec::IntoIter<(String, Quantity)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Extend<(String, Quantity)> for ResourceList {
    fn extend<I: IntoIterator<Item = (String, Quantity)>>(&mut self, entries: I) {
        for (name, amount) in entries {
            self.insert(name, amount);
        }
    }
}

impl FromIterator<(String, Quantity)> for ResourceList {
    fn from_iter<I: IntoIterator<Item = (String, Quantity)>>(entries: I) -> Self {
        let mut list = Self::new();
        list.extend(entries);
        list
    }
}

impl<const N: usize> From<[(String, Quantity); N]> for ResourceList {
    fn from(entries: [(String, Quantity); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl fmt::Debug for ResourceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl Serialize for ResourceList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de> Deserialize<'de> for ResourceList {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = ResourceList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ResourceList, M::Error> {
                let mut list = ResourceList::new();
                while let Some((name, amount)) = map.next_entry()? {
                    list.insert(name, amount);
                }
                Ok(list)
            }
        }

        input.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn amount(units: i64) -> Quantity {
        Quantity::from_units(units, crate::quantity::Format::DecimalSi)
    }

    fn entries(list: &ResourceList) -> Vec<(String, Quantity)> {
        list.iter()
            .map(|(name, amount)| (name.clone(), amount.clone()))
            .collect()
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((any::<bool>(), "[a-d]{0,2}", 0..9_i64), 0..20)) {
            let (mut list, mut map) = (ResourceList::new(), BTreeMap::new());
            for (insert, name, units) in steps {
                if insert {
                    prop_assert_eq!(list.insert(name.clone(), amount(units)), map.insert(name.clone(), amount(units)));
                } else {
                    prop_assert_eq!(list.remove(&name), map.remove(&name));
                }
                prop_assert_eq!(list.get(&name), map.get(&name));
                prop_assert_eq!(list.contains_key(&name), map.contains_key(&name));
            }
            prop_assert_eq!(entries(&list), map.clone().into_iter().collect::<Vec<_>>());
            prop_assert_eq!(list.len(), map.len());
            prop_assert_eq!(&map.clone().into_iter().rev().collect::<ResourceList>(), &list);
            let json = serde_json::to_string(&list).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&map).unwrap());
            prop_assert_eq!(serde_json::from_str::<ResourceList>(&json).unwrap(), list.clone());
            list.retain(|name, _| name.len() == 1);
            map.retain(|name, _| name.len() == 1);
            prop_assert_eq!(entries(&list), map.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn on_the_wire_the_last_of_two_counts() {
        let list: ResourceList = serde_json::from_str(r#"{"cpu":"1","memory":"2","cpu":3}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&list).unwrap(),
            r#"{"cpu":"3","memory":"2"}"#
        );
        assert!(serde_json::from_str::<ResourceList>("[]").is_err());
    }
}
