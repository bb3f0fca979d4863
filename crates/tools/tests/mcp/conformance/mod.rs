//! The official conformance suite of MCP, with a client that uses this library. The suite starts the client once for
//! each scenario, and checks the client's messages.
//!
//! A scenario that fails must have an entry with a reason in the list of expected failures. An entry of a scenario that
//! passes must be removed.
//!
//! `cargo xtask parts` downloads the suite. If Node and npm are missing, that command skips the suite and prints the
//! reason. In that case these tests do nothing.

mod expected_failures;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::support::part_program;
use expected_failures::{EXPECTED_FAILURES, Suite};

const PROGRAM: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

/// Maximum time of one run of the suite. The suite runs its scenarios in parallel, and a run takes a few seconds.
const RUN_MAX: Duration = Duration::from_mins(4);

/// Maximum time of one scenario, in milliseconds. The suite kills a client that takes longer.
const SCENARIO_MAX_MS: &str = "60000";

#[tokio::test]
async fn revision_2025_03_26() {
    check(Suite::Revision("2025-03-26"), 2).await;
}

#[tokio::test]
async fn revision_2025_06_18() {
    check(Suite::Revision("2025-06-18"), 5).await;
}

#[tokio::test]
async fn revision_2025_11_25() {
    check(Suite::Revision("2025-11-25"), 19).await;
}

#[tokio::test]
async fn revision_2026_07_28() {
    check(Suite::Revision("2026-07-28"), 33).await;
}

#[tokio::test]
async fn extensions() {
    check(Suite::Extensions, 6).await;
}

/// Runs the scenarios of a suite, and compares the failures with the list.
async fn check(suite: Suite, scenarios: usize) {
    let Some(program) = part_program("mcp_conformance", PROGRAM) else {
        return;
    };
    let printed = run(&program, suite).await;
    let with_sign = |sign: &str| -> BTreeSet<String> {
        let lines = printed.lines().filter_map(|line| line.strip_prefix(sign));
        let names = lines.filter_map(|line| line.split_once(": "));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    let (passed, failed) = (with_sign("✓ "), with_sign("✗ "));
    let expected = EXPECTED_FAILURES.iter();
    let expected = expected.filter(|expected| expected.suites.contains(&suite));
    let expected: BTreeSet<_> = expected
        .map(|failure| failure.scenario.to_owned())
        .collect();
    assert_eq!(
        failed, expected,
        "{suite:?}: failures are on the left\n{printed}"
    );
    assert_eq!(passed.len() + failed.len(), scenarios, "{printed}");
}

async fn run(program: &Path, suite: Suite) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp/conformance");
    let mut command = Command::new("node");
    command.arg("--import").arg(here.join("fs_of_node_22.mjs"));
    command.arg(program).args(["client", "--command"]);
    command.arg(env!("CARGO_BIN_EXE_allstop-tools-mcp-conformance-client"));
    command.args(["--timeout", SCENARIO_MAX_MS, "--suite"]);
    match suite {
        Suite::Revision(revision) => command.args(["all", "--spec-version", revision]),
        Suite::Extensions => command.arg("extensions"),
    };
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(RUN_MAX, command.output()).await;
    let output = output.expect("the suite ends in time").unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    format!("{error}\n{}", String::from_utf8_lossy(&output.stdout))
}
