//! The wire types of the APIs we speak: what is read from and written to the API server, field for field.
//! They decode whatever the server can hold (one odd object must not cost a whole list) and decide nothing.

pub mod checkpoint;
pub mod k8s;
pub mod metrics;
mod open_enum;
mod schema;
pub mod sidecarset;
pub mod vpa;
mod wire;

#[cfg(test)]
mod tests;

pub use open_enum::OpenEnum;
