//! The recommender.

fn main() {}
