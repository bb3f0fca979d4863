//! The bill of materials: each package that the binary contains, with its version, licence and checksum, and the packages
//! on which it depends. The format is SPDX 2.3 in JSON.
//!
//! `cargo tree` lists the packages of the binary, and `Cargo.lock` has the checksums of their archives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::Release;
use crate::{exec, workspace};

/// Root of the tree.
const BINARY: &str = "allstop-cli";

/// Name and version of a package.
type Id = (String, String);

/// The packages of a binary, each with its licence, and the pairs of a package and its dependency.
#[derive(Debug, Default)]
struct Tree {
    licences: BTreeMap<Id, String>,
    edges: BTreeSet<(Id, Id)>,
}

/// Returns the document for a release.
pub(super) fn make(release: &Release) -> anyhow::Result<String> {
    let tree = exec::output(workspace::cargo().args([
        "tree",
        "--locked",
        "--package=allstop-cli",
        "--edges=normal",
        "--prefix=depth",
        "--format=\t{p}\t{l}",
    ]))?;
    let lock = fs::read_to_string(workspace::root().join("Cargo.lock"))?;
    let created = exec::output(Command::new("date").args([
        "--utc",
        &format!("--date=@{}", release.epoch),
        "+%Y-%m-%dT%H:%M:%SZ",
    ]))?;
    let bill = document(
        &read_tree(&tree)?,
        &checksums(&lock),
        release,
        created.trim(),
    )?;
    Ok(format!("{bill:#}\n"))
}

/// Reads the output of `cargo tree`: in each line the depth, the package and its licence.
fn read_tree(text: &str) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    let mut path = Vec::<Id>::new();
    for line in text.lines() {
        let mut columns = line.split('\t');
        let mut column = || {
            columns
                .next()
                .with_context(|| format!("`{line}` is too short"))
        };
        let depth: usize = column()?.parse().context("a line without a depth")?;
        let (package, licence) = (column()?, column()?);
        let (name, rest) = package
            .split_once(" v")
            .with_context(|| format!("`{package}` has no version"))?;
        let version = rest.split(' ').next().unwrap_or_default();
        let id = (name.to_owned(), version.to_owned());
        // A repeated package has a mark.
        let licence = licence.trim_end_matches(" (*)").replace('/', " OR ");
        path.truncate(depth);
        if let Some(parent) = path.last() {
            tree.edges.insert((parent.clone(), id.clone()));
        }
        tree.licences.insert(id.clone(), licence);
        path.push(id);
    }
    if tree.licences.len() < 2 {
        bail!("cargo tree lists no packages");
    }
    Ok(tree)
}

/// Reads the checksums of archives from `Cargo.lock`. Packages of this workspace have none.
fn checksums(lock: &str) -> BTreeMap<Id, &str> {
    let entries = lock.split("[[package]]").skip(1);
    entries
        .filter_map(|entry| {
            let value = |key: &str| {
                let mut lines = entry.lines();
                lines.find_map(|line| line.strip_prefix(key)?.strip_suffix('"'))
            };
            let id = (
                value("name = \"")?.to_owned(),
                value("version = \"")?.to_owned(),
            );
            Some((id, value("checksum = \"")?))
        })
        .collect()
}

fn document(
    tree: &Tree,
    checksums: &BTreeMap<Id, &str>,
    release: &Release,
    created: &str,
) -> anyhow::Result<Value> {
    let mut packages = Vec::new();
    for (id, licence) in &tree.licences {
        packages.push(package(id, licence, checksums.get(id).copied())?);
    }
    let root = tree.licences.keys().find(|(name, _)| name == BINARY);
    let root = root.context("the binary is not in its tree")?;
    let describes = json!({
        "spdxElementId": "SPDXRef-DOCUMENT",
        "relationshipType": "DESCRIBES",
        "relatedSpdxElement": reference(root),
    });
    let depends = tree.edges.iter().map(|(from, to)| {
        json!({
            "spdxElementId": reference(from),
            "relationshipType": "DEPENDS_ON",
            "relatedSpdxElement": reference(to),
        })
    });
    let relationships: Vec<Value> = std::iter::once(describes).chain(depends).collect();
    let name = format!("allstop-{}-{}", release.version, release.target);
    Ok(json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": format!("https://allstop.dev/spdx/{name}-{}", release.epoch),
        "creationInfo": {"created": created, "creators": ["Tool: cargo-xtask-dist"]},
        "packages": packages,
        "relationships": relationships,
    }))
}

fn package(id: &Id, licence: &str, checksum: Option<&str>) -> anyhow::Result<Value> {
    let (name, version) = id;
    let is_own = name.starts_with("allstop");
    if licence.is_empty() || checksum.is_none() && !is_own {
        bail!("{name} {version} has no licence or no checksum");
    }
    let mut package = json!({
        "SPDXID": reference(id),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")),
        }],
    });
    if let Some(sum) = checksum {
        package["checksums"] = json!([{"algorithm": "SHA256", "checksumValue": sum}]);
    }
    Ok(package)
}

/// Identifier of a package in the document, which may contain only letters, digits, `.` and `-`.
fn reference((name, version): &Id) -> String {
    let text = format!("SPDXRef-{name}-{version}");
    text.replace(
        |char: char| !char.is_ascii_alphanumeric() && char != '.',
        "-",
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const TREE: &str = "0\tallstop-cli v0.1.0 (/a/path)\tMIT\n\
                        1\tbase_64 v0.23.1+x\tMIT/Apache-2.0\n\
                        2\tserde v1.0.0 (proc-macro)\tMIT\n\
                        1\tserde v1.0.0\tMIT (*)\n";

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"allstop-cli\"\nversion = \"0.1.0\"\n\n\
                        [[package]]\nname = \"base_64\"\nversion = \"0.23.1+x\"\nchecksum = \"ab\"\n\n\
                        [[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nchecksum = \"cd\"\n";

    fn bill(lock: &str) -> anyhow::Result<Value> {
        let release = Release {
            profile: "dev",
            binary: PathBuf::new(),
            version: "0.1.0".to_owned(),
            target: "x86_64-unknown-linux-gnu".to_owned(),
            epoch: "0".to_owned(),
        };
        document(
            &read_tree(TREE)?,
            &checksums(lock),
            &release,
            "1970-01-01T00:00:00Z",
        )
    }

    #[test]
    fn each_package_has_its_version_licence_and_checksum() {
        let bill = bill(LOCK).expect("a bill");
        let packages = bill["packages"].as_array().expect("packages");
        assert_eq!(packages.len(), 3);
        assert_eq!(packages[1]["SPDXID"], "SPDXRef-base-64-0.23.1-x");
        assert_eq!(packages[1]["versionInfo"], "0.23.1+x");
        assert_eq!(packages[1]["licenseDeclared"], "MIT OR Apache-2.0");
        assert_eq!(packages[1]["checksums"][0]["checksumValue"], "ab");
        let locator = &packages[1]["externalRefs"][0]["referenceLocator"];
        assert_eq!(locator, "pkg:cargo/base_64@0.23.1%2Bx");
        assert_eq!(packages[2]["licenseDeclared"], "MIT");
    }

    #[test]
    fn relationships_are_those_of_the_tree() {
        let bill = bill(LOCK).expect("a bill");
        let related: Vec<(&str, &str)> = bill["relationships"]
            .as_array()
            .expect("relationships")
            .iter()
            .map(|it| {
                (
                    it["spdxElementId"].as_str().unwrap_or_default(),
                    it["relatedSpdxElement"].as_str().unwrap_or_default(),
                )
            })
            .collect();
        let (cli, base, serde) = (
            "SPDXRef-allstop-cli-0.1.0",
            "SPDXRef-base-64-0.23.1-x",
            "SPDXRef-serde-1.0.0",
        );
        assert_eq!(
            related,
            [
                ("SPDXRef-DOCUMENT", cli),
                (cli, base),
                (cli, serde),
                (base, serde)
            ]
        );
    }

    #[test]
    fn foreign_package_without_a_checksum_is_an_error() {
        assert!(bill("").is_err());
    }
}
