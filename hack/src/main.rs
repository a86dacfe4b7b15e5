//! `cargo run -p hack -- --help`

fn main() {}
