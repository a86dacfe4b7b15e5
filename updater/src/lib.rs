//! Brings running pods to the resources they should have, by resize in place or by eviction.
