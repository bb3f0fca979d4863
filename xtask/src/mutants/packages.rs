//! Packages whose tests run for the mutants (small mistakes) in a package.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::Value;

use crate::workspace;

/// Packages of the workspace, with their dependencies on other packages of the workspace. Development dependencies are
/// included.
pub(super) struct Packages(BTreeMap<String, BTreeSet<String>>);

impl Packages {
    pub(super) fn read() -> anyhow::Result<Self> {
        Self::of_metadata(&workspace::metadata()?)
    }

    fn of_metadata(metadata: &Value) -> anyhow::Result<Self> {
        let packages = metadata["packages"].as_array();
        let packages = packages.context("cargo metadata lists no packages")?;
        let names: BTreeSet<&str> = packages
            .iter()
            .filter_map(|it| it["name"].as_str())
            .collect();
        let below = |package: &Value| {
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let ours = dependencies.filter_map(|it| it["name"].as_str());
            ours.filter(|name| names.contains(name))
                .map(str::to_owned)
                .collect()
        };
        let all = packages.iter().filter_map(|package| {
            let name = package["name"].as_str()?.to_owned();
            Some((name, below(package)))
        });
        Ok(Self(all.collect()))
    }

    /// Returns the package, and the separate package with its tests, if such a package exists.
    pub(super) fn tests_of(&self, package: &str) -> Vec<String> {
        let tests = format!("{package}-tests");
        let tests = self.0.contains_key(&tests).then_some(tests);
        std::iter::once(package.to_owned()).chain(tests).collect()
    }

    /// Returns all other packages that depend on the package, directly or indirectly.
    pub(super) fn tests_of_dependents(&self, package: &str) -> Vec<String> {
        let mut reached = BTreeSet::from([package]);
        loop {
            let more = self
                .0
                .iter()
                .filter(|(_, below)| below.iter().any(|below| reached.contains(below.as_str())));
            let more: BTreeSet<&str> = more.map(|(name, _)| name.as_str()).collect();
            if more.is_subset(&reached) {
                break;
            }
            reached.extend(more);
        }
        let own = self.tests_of(package);
        // The fuzz targets have no tests.
        let others = reached.into_iter().filter(|name| *name != "allstop-fuzz");
        others
            .map(str::to_owned)
            .filter(|name| !own.contains(name))
            .collect()
    }
}

/// Returns the number of mutants of each package, from the output of `cargo mutants --list --json`.
pub(super) fn count(list: &str) -> anyhow::Result<Vec<(String, usize)>> {
    let mut counts = BTreeMap::new();
    // If no mutant exists, cargo-mutants prints nothing.
    if list.trim().is_empty() {
        return Ok(Vec::new());
    }
    let list: Value = serde_json::from_str(list).context("cargo-mutants printed no JSON")?;
    for mutant in list.as_array().into_iter().flatten() {
        let package = mutant["package"].as_str();
        let package = package.context("a mutant without a package")?;
        *counts.entry(package.to_owned()).or_default() += 1;
    }
    Ok(counts.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tests_of_all_dependents_are_found() {
        let package = |name: &str, below: &[&str]| {
            let below: Vec<_> = below.iter().map(|name| json!({ "name": name })).collect();
            json!({ "name": name, "dependencies": below })
        };
        let packages = Packages::of_metadata(&json!({ "packages": [
            package("core", &["serde"]),
            package("task", &["core"]),
            package("task-tests", &["task"]),
            package("cli", &["task"]),
            package("xtask", &[]),
        ] }));
        let packages = packages.unwrap();
        assert_eq!(packages.tests_of("task"), ["task", "task-tests"]);
        assert_eq!(packages.tests_of_dependents("task"), ["cli"]);
        assert_eq!(
            packages.tests_of_dependents("core"),
            ["cli", "task", "task-tests"]
        );
        assert_eq!(packages.tests_of_dependents("xtask"), [""; 0]);
    }

    #[test]
    fn mutants_are_counted_for_each_package() {
        let list = r#"[{"package": "b"}, {"package": "a"}, {"package": "b"}]"#;
        let expected = [("a".to_owned(), 1), ("b".to_owned(), 2)];
        assert_eq!(count(list).unwrap(), expected);
        assert_eq!(count("").unwrap(), []);
    }
}
