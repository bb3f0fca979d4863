//! Checks that at most three files of a crate import each other in a circle.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::imports::{self, Imports};
use crate::workspace;

/// Files that one circle of imports may have: a parent and two children can belong together.
const FILES_MAX: usize = 3;

pub(super) fn check() -> anyhow::Result<()> {
    let root = workspace::root();
    let mut complaints = Vec::new();
    for package in std::fs::read_dir(root.join("crates"))? {
        let source = package?.path().join("src");
        for name in ["lib.rs", "main.rs"] {
            let file = source.join(name);
            if file.exists() {
                let imports = imports::of_crate(&file)?;
                let knots = knots(&imports);
                complaints.extend(knots.iter().map(|knot| shown(root, &imports, knot)));
            }
        }
    }
    if complaints.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\nMove what they share into a file below them",
        complaints.join("\n")
    )
}

/// The circles of imports that are too large.
fn knots(imports: &Imports) -> Vec<BTreeSet<&Path>> {
    let mut knots = BTreeSet::new();
    for file in imports.keys() {
        let mutual = reached(imports, file)
            .into_iter()
            .filter(|other| reached(imports, other).contains(file.as_path()));
        let knot: BTreeSet<&Path> = mutual.collect();
        if knot.len() > FILES_MAX {
            knots.insert(knot);
        }
    }
    knots.into_iter().collect()
}

/// Every file that a file imports, directly or through others.
fn reached<'a>(imports: &'a Imports, from: &'a Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        let imported = imports.get(file).into_iter().flatten();
        next.extend(
            imported
                .map(PathBuf::as_path)
                .filter(|file| reached.insert(*file)),
        );
    }
    reached
}

/// Prints a line for each file, with the files of the circle that it imports.
fn shown(root: &Path, imports: &Imports, knot: &BTreeSet<&Path>) -> String {
    let name = |file: &Path| {
        file.strip_prefix(root)
            .unwrap_or(file)
            .display()
            .to_string()
    };
    let mut lines = vec![format!("{} files import each other:", knot.len())];
    for file in knot {
        let imported = imports.get(*file).into_iter().flatten();
        let imported = imported.filter(|other| knot.contains(other.as_path()));
        let imported: Vec<String> = imported.map(|other| name(other)).collect();
        lines.push(format!("  {} → {}", name(file), imported.join(", ")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(edges: &[(&str, &str)]) -> Imports {
        let mut imports = Imports::new();
        for (from, to) in edges {
            imports.entry(from.into()).or_default().insert(to.into());
            imports.entry(to.into()).or_default();
        }
        imports
    }

    #[test]
    fn circle_of_four_is_found_and_one_of_three_passes() {
        let four = imports(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("e", "a")]);
        let found = knots(&four);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0], ["a", "b", "c", "d"].map(Path::new).into());
        assert!(knots(&imports(&[("a", "b"), ("b", "c"), ("c", "a")])).is_empty());
    }
}
