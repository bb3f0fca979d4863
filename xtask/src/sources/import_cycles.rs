//! Checks the cycles of imports between the files of a crate: at most three files may be in one cycle.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::imports::{self, Imports};
use crate::workspace;

/// Maximum number of files in one cycle. A module and two of its child modules may belong together.
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
                let cycles = find_cycles(&imports);
                complaints.extend(cycles.iter().map(|cycle| shown(root, &imports, cycle)));
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

/// Returns the import cycles with too many files.
fn find_cycles(imports: &Imports) -> Vec<BTreeSet<&Path>> {
    let mut cycles = BTreeSet::new();
    for file in imports.keys() {
        let mutual = reached(imports, file)
            .into_iter()
            .filter(|other| reached(imports, other).contains(file.as_path()));
        let cycle: BTreeSet<&Path> = mutual.collect();
        if cycle.len() > FILES_MAX {
            cycles.insert(cycle);
        }
    }
    cycles.into_iter().collect()
}

/// Returns every file that a file imports, directly or through other files.
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

/// Describes a cycle. Each file of the cycle has one line, with its imports that belong to the cycle.
fn shown(root: &Path, imports: &Imports, cycle: &BTreeSet<&Path>) -> String {
    let name = |file: &Path| {
        file.strip_prefix(root)
            .unwrap_or(file)
            .display()
            .to_string()
    };
    let mut lines = vec![format!("{} files import each other:", cycle.len())];
    for file in cycle {
        let imported = imports.get(*file).into_iter().flatten();
        let imported = imported.filter(|other| cycle.contains(other.as_path()));
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
    fn cycle_of_four_is_found_and_one_of_three_passes() {
        let four = imports(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("e", "a")]);
        let found = find_cycles(&four);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0], ["a", "b", "c", "d"].map(Path::new).into());
        assert!(find_cycles(&imports(&[("a", "b"), ("b", "c"), ("c", "a")])).is_empty());
    }
}
