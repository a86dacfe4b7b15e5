//! The generated pages are up to date.
use std::path::Path;

use hack::docs;

#[test]
fn the_generated_pages_are_up_to_date() {
    let stale = docs::stale(Path::new(docs::DIRECTORY), &docs::pages().unwrap()).unwrap();
    assert_eq!(stale, [""; 0], "run `cargo run -p hack -- docs`");
}
