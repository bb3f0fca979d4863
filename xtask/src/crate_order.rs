//! Order of the crates. A crate may depend only on crates that come before it in this order.
//!
//! Reads the output of `cargo metadata`, so a wrong dependency fails as soon as it is added.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::{exec, workspace};

/// The order of the crates. Each crate may depend only on crates before it in this list. The list also contains planned
/// crates. If a new crate is missing in this list, the check fails.
const ORDER: [&str; 31] = [
    "core",
    "process",
    "scope",
    "log",
    "log-tests",
    "model",
    "tools",
    "tools-tests",
    "agent",
    "session",
    "task",
    "task-tests",
    "otel",
    "nats",
    "runtime",
    "runtime-tests",
    "jsonrpc",
    "terminal",
    "host",
    "remote",
    "a2a",
    "copilot",
    "mcp-server",
    "acp",
    "web",
    "allstop",
    "python",
    "bench",
    "testkit",
    "cli",
    "fuzz",
];

/// Crates that the tests and benchmarks of every crate may use.
const FOR_TESTS: [&str; 2] = ["bench", "testkit"];

/// Protocols. A protocol never depends on another protocol, so each of them can be removed alone.
const PROTOCOLS: [&str; 4] = ["a2a", "copilot", "mcp-server", "acp"];

/// Crates that the core must not use, directly or indirectly, because the core does no I/O and contains no asynchronous
/// code.
const NOT_IN_CORE: [&str; 4] = ["tokio", "mio", "futures-util", "hyper"];

pub(crate) fn check() -> anyhow::Result<()> {
    let mut wrong = wrong_dependencies(&workspace::metadata()?)?;
    let tree = exec::output(workspace::cargo().args([
        "tree",
        "--package=allstop-core",
        "--edges=normal",
        "--all-features",
        "--prefix=none",
        "--format={lib}",
    ]))?;
    wrong.extend(wrong_below_core(&tree)?);
    if wrong.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\n(the order, from the bottom up: {})",
        wrong.join("\n"),
        ORDER.join(", ")
    )
}

/// Returns the wrong dependencies of the members, each as a sentence: dependencies on a crate that does not come before
/// the member in the order.
fn wrong_dependencies(metadata: &Value) -> anyhow::Result<Vec<String>> {
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    let mut wrong = Vec::new();
    let mut seen = 0;
    for package in packages {
        let name = package["name"]
            .as_str()
            .context("a package without a name")?;
        if name == "xtask" {
            // `xtask` is not in the order, because it is built first. It must use no other crate of the workspace.
            wrong.extend(
                ours(package, |_| true)?
                    .into_iter()
                    .map(|to| format!("xtask depends on {to}")),
            );
            continue;
        }
        let short = name.strip_prefix("allstop-").unwrap_or(name);
        let Some(level) = level(short) else {
            wrong.push(format!("{short} has no place in the order"));
            continue;
        };
        seen += 1;
        // Tests may use two kinds of crates: the crates for tests, and crates that come before the tested crate in the
        // order.
        for to in ours(package, |kind| kind == Some("dev"))? {
            let above = self::level(&to).is_none_or(|target| target >= level);
            if above && !FOR_TESTS.contains(&to.as_str()) {
                wrong.push(format!("the tests of {short} depend on {to}"));
            }
        }
        for to in ours(package, |kind| kind != Some("dev"))? {
            if self::level(&to).is_none_or(|target| target >= level) {
                wrong.push(format!("{short} depends on {to}"));
            } else if PROTOCOLS.contains(&short) && PROTOCOLS.contains(&to.as_str()) {
                wrong.push(format!("{short} depends on {to}, another protocol"));
            }
        }
    }
    if seen == 0 {
        bail!("cargo metadata lists no crate of ours, so nothing was checked");
    }
    Ok(wrong)
}

/// Returns the short names of the workspace crates on which a package depends, for some kinds of dependencies.
fn ours(
    package: &Value,
    wanted: impl Fn(Option<&str>) -> bool,
) -> anyhow::Result<BTreeSet<String>> {
    let dependencies = package["dependencies"]
        .as_array()
        .context("a package without dependencies")?;
    Ok(dependencies
        .iter()
        .filter(|dependency| wanted(dependency["kind"].as_str()))
        .filter_map(|dependency| dependency["name"].as_str()?.strip_prefix("allstop-"))
        .map(str::to_owned)
        .collect())
}

fn level(short: &str) -> Option<usize> {
    ORDER.iter().position(|name| *name == short)
}

/// Returns the forbidden libraries on which the core depends. `tree` has one library per line, as printed by
/// `cargo tree --format={lib}`.
fn wrong_below_core(tree: &str) -> anyhow::Result<Vec<String>> {
    let below: BTreeSet<&str> = tree.lines().map(str::trim).collect();
    if !below.contains("allstop_core") {
        bail!("cargo tree does not list the core itself, so nothing was checked");
    }
    Ok(NOT_IN_CORE
        .iter()
        .filter(|name| below.contains(name.replace('-', "_").as_str()))
        .map(|name| format!("core reaches {name}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The name of a crate, and its dependencies, each as a pair of name and kind.
    type Crate<'a> = (&'a str, &'a [(&'a str, Option<&'a str>)]);

    /// Output of `cargo metadata` for these crates.
    fn metadata(crates: &[Crate<'_>]) -> Value {
        let packages: Vec<Value> = crates
            .iter()
            .map(|(name, dependencies)| {
                let dependencies: Vec<Value> = dependencies
                    .iter()
                    .map(|(name, kind)| json!({"name": name, "kind": kind}))
                    .collect();
                json!({"name": name, "dependencies": dependencies})
            })
            .collect();
        json!({"packages": packages})
    }

    #[track_caller]
    fn check(crates: &[Crate<'_>], expected: &[&str]) {
        assert_eq!(
            wrong_dependencies(&metadata(crates)).expect("metadata"),
            expected
        );
    }

    #[test]
    fn this_workspace_follows_the_order() {
        super::check().expect("the order of this workspace");
    }

    #[test]
    fn downward_dependencies_pass() {
        check(
            &[(
                "allstop-cli",
                &[
                    ("allstop-core", None),
                    ("tokio", None),
                    ("allstop-web", None),
                ],
            )],
            &[],
        );
        check(
            &[(
                "allstop-core",
                &[
                    ("allstop-testkit", Some("dev")),
                    ("allstop-bench", Some("dev")),
                ],
            )],
            &[],
        );
    }

    #[test]
    fn every_kind_of_upward_dependency_fails() {
        check(
            &[("allstop-core", &[("allstop-scope", None)])],
            &["core depends on scope"],
        );
        check(
            &[("allstop-log", &[("allstop-cli", Some("build"))])],
            &["log depends on cli"],
        );
        check(
            &[("allstop-log", &[("allstop-agent", Some("dev"))])],
            &["the tests of log depend on agent"],
        );
        check(
            &[("allstop-log", &[("allstop-bench", None)])],
            &["log depends on bench"],
        );
        check(
            &[("allstop-log", &[]), ("xtask", &[("allstop-core", None)])],
            &["xtask depends on core"],
        );
    }

    #[test]
    fn protocols_never_depend_on_each_other() {
        check(
            &[("allstop-acp", &[("allstop-a2a", None)])],
            &["acp depends on a2a, another protocol"],
        );
    }

    #[test]
    fn unknown_crates_fail() {
        check(
            &[("allstop-new", &[]), ("allstop-log", &[])],
            &["new has no place in the order"],
        );
        check(
            &[("allstop-cli", &[("allstop-new", None)])],
            &["cli depends on new"],
        );
    }

    #[test]
    fn nothing_to_check_is_a_failure() {
        assert!(wrong_dependencies(&metadata(&[])).is_err());
        assert!(wrong_below_core("").is_err());
    }

    #[test]
    fn core_never_reaches_tokio() {
        assert_eq!(
            wrong_below_core("allstop_core\nserde\ntokio\n").expect("tree"),
            ["core reaches tokio"]
        );
        assert!(
            wrong_below_core("allstop_core\ntokio_util\n")
                .expect("tree")
                .is_empty()
        );
    }
}
