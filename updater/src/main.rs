//! The updater.

fn main() {}
