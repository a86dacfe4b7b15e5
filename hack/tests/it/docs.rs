//! The generated pages are up to date, and links lead somewhere.

use std::{
    fs,
    path::{Path, PathBuf},
};

use hack::docs;
use regex::Regex;

#[test]
fn the_generated_pages_are_up_to_date() {
    let stale = docs::stale(Path::new(docs::DIRECTORY), &docs::pages().unwrap()).unwrap();
    assert_eq!(stale, [""; 0], "run `cargo run -p hack -- docs`");
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept = heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .collect::<String>();
    kept.trim().replace(' ', "-")
}

fn anchors(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let root = Path::new(docs::DIRECTORY).parent().unwrap();
    let mut pages: Vec<PathBuf> = fs::read_dir(docs::DIRECTORY)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.extend([root.join("README.md"), root.join("CONTRIBUTING.md")]);
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut found = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in link.captures_iter(&text) {
            let link = &link[1];
            if link.starts_with("http") {
                continue;
            }
            found += 1;
            let (file, part) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link} leads nowhere", page.display());
            assert!(
                part.is_empty() || anchors(&target).iter().any(|anchor| anchor == part),
                "{}: {link}: no such heading",
                page.display()
            );
        }
    }
    assert!(found > 40, "only {found} links");
}
