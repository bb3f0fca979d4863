//! Packages that a program with the crate `allstop` compiles.
//!
//! A dependency without `optional` reaches every program that embeds Allstop. This check fails as soon as the dependency is
//! added.

use std::collections::BTreeSet;

use anyhow::bail;

use crate::{exec, workspace};

/// Maximum number of packages without default features, with the packages of tokio.
const MINIMAL_MAX: usize = 72;

/// Maximum number of packages with the default features.
const DEFAULT_MAX: usize = 140;

/// Packages that no program compiles without a feature: SQLite, MCP, search, HTTP, and the validation of JSON schemas.
const NOT_IN_MINIMAL: [&str; 11] = [
    "boon",
    "globset",
    "grep-regex",
    "grep-searcher",
    "hyper",
    "ignore",
    "libsqlite3-sys",
    "reqwest",
    "rmcp",
    "rusqlite",
    "rustls",
];

pub(crate) fn check() -> anyhow::Result<()> {
    let minimal = packages(&["--no-default-features"])?;
    let default = packages(&[])?;
    let mut wrong = unwanted(&minimal);
    for (name, packages, most) in [
        ("without default features", &minimal, MINIMAL_MAX),
        ("with default features", &default, DEFAULT_MAX),
    ] {
        if packages.len() > most {
            wrong.push(format!(
                "`allstop` {name} has {} packages, more than {most}",
                packages.len()
            ));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}", wrong.join("\n"))
}

/// Names and versions of the packages below `allstop`.
fn packages(features: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    let tree = exec::output(
        workspace::cargo()
            .args(["tree", "--package=allstop", "--edges=normal"])
            .args(["--prefix=none", "--format={p}"])
            .args(features),
    )?;
    let packages = names(&tree);
    if !packages.iter().any(|package| package.starts_with("tokio ")) {
        bail!("cargo tree does not list tokio, so nothing was checked");
    }
    Ok(packages)
}

/// The name and version of each line. A line may contain more, such as a path or a mark of a repetition.
fn names(tree: &str) -> BTreeSet<String> {
    let package = |line: &str| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?))
    };
    tree.lines().filter_map(package).collect()
}

/// The unwanted packages, each as a sentence.
fn unwanted(packages: &BTreeSet<String>) -> Vec<String> {
    let names: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package.split(' ').next())
        .collect();
    NOT_IN_MINIMAL
        .iter()
        .filter(|name| names.contains(**name))
        .map(|name| format!("`allstop` without default features compiles {name}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facade_compiles_only_its_parts() {
        check().expect("the packages of the facade");
    }

    /// `cargo doc --open` opens the first default member that has documentation.
    #[test]
    fn cargo_doc_opens_the_facade() {
        let metadata = workspace::metadata().expect("metadata");
        let first = metadata["workspace_default_members"][0].as_str();
        assert!(
            first.expect("a member").contains("/crates/allstop#"),
            "{first:?}"
        );
        let mut packages = metadata["packages"].as_array().expect("packages").iter();
        let cli = packages.find(|package| package["name"] == "allstop-cli");
        let targets = cli.expect("the binary")["targets"].as_array();
        let mut programs = targets
            .expect("targets")
            .iter()
            .filter(|it| it["kind"][0] == "bin");
        assert!(programs.all(|program| program["doc"] == false));
    }

    #[test]
    fn unwanted_packages_are_named() {
        let tree = "allstop v0.1.0 (/a/path)\ntokio v1.54.1\nrusqlite v0.41.0\ntokio v1.54.1 (*)\n";
        let packages = names(tree);
        assert_eq!(packages.len(), 3);
        assert_eq!(
            unwanted(&packages),
            ["`allstop` without default features compiles rusqlite"]
        );
    }
}
