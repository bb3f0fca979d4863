//! Checks that the tests named in `README.md` exist.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// True if a word in backticks is a test with its module: `commit::a_ghost_turn_is_impossible`, `loops::*`.
fn is_test(word: &&str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:*".contains(c);
    word.contains("::") && word.chars().all(is_letter)
}

/// Collects the names of the functions and files in a folder.
fn names(folder: &Path, found: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().expect("a name").to_string_lossy();
        if path.is_dir() {
            names(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("source text");
            let functions = text.split("fn ").skip(1);
            let names = functions.filter_map(|rest| rest.split(['(', '<']).next());
            found.extend(names.map(str::to_owned));
        }
        found.insert(stem.into_owned());
    }
}

#[test]
fn every_test_that_the_readme_names_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = include_str!("README.md");
    let mut known = HashSet::new();
    names(&crates, &mut known);
    let named: Vec<&str> = readme
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(is_test)
        .collect();
    assert!(named.len() > 50, "{named:?}");
    let is_known = |word: &&&str| {
        word.split("::")
            .all(|part| part == "*" || known.contains(part))
    };
    let unknown: Vec<_> = named.iter().filter(|word| !is_known(word)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}
