//! Packages that are published: each one has all fields that a registry shows, and `cargo package` accepts it.
//!
//! The packages are not compiled again from their archives, because that takes minutes. Instead, a check finds sources that
//! include a file outside of their package. A symbolic link is inside: Cargo packages its target. The field `repository` is not
//! required, because the repository has no public address.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::{exec, sources, workspace};

/// Fields of a manifest that must not be empty.
const REQUIRED: [&str; 8] = [
    "categories",
    "description",
    "documentation",
    "homepage",
    "keywords",
    "license",
    "readme",
    "rust_version",
];

/// Packages that have a program. A test helper never is a program of a library, because `cargo install` would install it.
const PROGRAMS: [&str; 1] = ["allstop-cli"];

pub(crate) fn check() -> anyhow::Result<()> {
    let metadata = workspace::metadata()?;
    let published = published(&metadata)?;
    let mut wrong: Vec<String> = published.iter().flat_map(|it| problems(it)).collect();
    for file in sources::read("crates/*/src/*.rs")? {
        let path = file.path.display();
        let outside = outside_includes(&file.path, &file.text);
        wrong.extend(
            outside.map(|name| format!("{path} includes {name}, which is not in its package")),
        );
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    let mut package = workspace::cargo();
    // Uncommitted changes are accepted, because the gates also run before a commit.
    package.args(["package", "--no-verify", "--allow-dirty", "--quiet"]);
    for name in published.iter().filter_map(|it| it["name"].as_str()) {
        package.args(["--package", name]);
    }
    exec::output(&mut package)?;
    Ok(())
}

/// Returns the members of the workspace that are published.
fn published(metadata: &Value) -> anyhow::Result<Vec<&Value>> {
    let packages = metadata["packages"].as_array();
    let packages = packages.context("cargo metadata lists no packages")?;
    let published: Vec<&Value> = packages
        .iter()
        .filter(|it| it["publish"].is_null())
        .collect();
    if published.is_empty() {
        bail!("no package is published, so nothing was checked");
    }
    Ok(published)
}

/// Returns the problems of a package, each as a sentence.
fn problems(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let mut problems: Vec<String> = REQUIRED
        .iter()
        .filter(|field| is_empty(&package[**field]))
        .map(|field| format!("{name} has no {field}"))
        .collect();
    let documentation = format!("https://docs.rs/{name}");
    if package["documentation"] != documentation.as_str() {
        problems.push(format!(
            "the documentation of {name} is not {documentation}"
        ));
    }
    if package["metadata"]["docs"]["rs"]["all-features"] != true {
        problems.push(format!(
            "{name} has no `all-features = true` in [package.metadata.docs.rs]"
        ));
    }
    if !PROGRAMS.contains(&name) {
        let targets = package["targets"].as_array().into_iter().flatten();
        let programs = targets.filter(|target| target["kind"][0] == "bin");
        problems
            .extend(programs.map(|target| format!("{name} has the program {}", target["name"])));
    }
    problems
}

/// Returns the files that a source in `crates/NAME/…` includes from other folders than `crates/NAME`.
fn outside_includes<'a>(source: &Path, text: &'a str) -> impl Iterator<Item = &'a str> {
    // The folders of the source below the folder of the package, without `crates`, the name and the file.
    let depth = source.components().count().saturating_sub(3);
    let includes = ["include!(\"", "include_str!(\"", "include_bytes!(\""];
    let names = includes
        .into_iter()
        .flat_map(move |start| text.split(start).skip(1));
    names
        .filter_map(|rest| rest.split('"').next())
        .filter(move |name| name.matches("../").count() > depth)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complete() -> Value {
        json!({
            "name": "allstop-x", "publish": null, "description": "x", "license": "MIT", "readme": "README.md",
            "homepage": "https://allstop.dev", "documentation": "https://docs.rs/allstop-x", "rust_version": "1.95",
            "keywords": ["agent"], "categories": ["asynchronous"], "metadata": {"docs": {"rs": {"all-features": true}}},
            "targets": [{"name": "allstop_x", "kind": ["lib"]}]
        })
    }

    #[test]
    fn complete_package_passes() {
        assert_eq!(problems(&complete()), [""; 0]);
    }

    #[test]
    fn missing_field_is_named() {
        for field in REQUIRED {
            let mut package = complete();
            package[field] = if package[field].is_array() {
                json!([])
            } else {
                Value::Null
            };
            assert!(problems(&package).contains(&format!("allstop-x has no {field}")));
        }
        let mut package = complete();
        package["metadata"] = Value::Null;
        assert_eq!(problems(&package).len(), 1);
    }

    #[test]
    fn program_of_a_library_is_named() {
        let mut package = complete();
        package["targets"] = json!([{"name": "allstop-x-helper", "kind": ["bin"]}]);
        assert_eq!(
            problems(&package),
            ["allstop-x has the program \"allstop-x-helper\""]
        );
        package["name"] = json!("allstop-cli");
        package["documentation"] = json!("https://docs.rs/allstop-cli");
        assert_eq!(problems(&package), [""; 0]);
    }

    #[test]
    fn file_outside_of_the_package_is_named() {
        let found = |text| {
            let source = Path::new("crates/a/src/b/c.rs");
            outside_includes(source, text).collect::<Vec<_>>()
        };
        assert_eq!(found("include_str!(\"../../book/x.md\")"), [""; 0]);
        let outside = "#![doc = include_str!(\"../../../../docs/x.md\")]";
        assert_eq!(found(outside), ["../../../../docs/x.md"]);
    }

    #[test]
    fn private_packages_are_ignored() {
        let mut private = complete();
        private["publish"] = json!([]);
        let both = json!({"packages": [private, complete()]});
        assert_eq!(published(&both).expect("packages").len(), 1);
        assert!(published(&json!({"packages": []})).is_err());
    }
}
