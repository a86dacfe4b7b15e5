//! The admission.

fn main() {}
