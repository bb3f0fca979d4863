//! The official conformance suite of MCP against `allstop mcp serve --http`.
//!
//! The suite is made for a server with certain tools, prompts and resources. A scenario that needs one of them is in the
//! list of left-out scenarios, with its reason. Each other scenario must pass, and an entry of a scenario that passes
//! must be removed.
//!
//! `cargo xtask parts` downloads the suite. If Node and npm are missing, that command skips the suite and prints the
//! reason. In that case these tests do nothing.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::parts::part;
use crate::support::{Place, Signal};

const PROGRAM: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

const NO_TEST_TOOL: &str = "needs a tool of the suite's own server, such as `test_simple_text`";

/// Scenarios that do not pass, each with the reason.
const LEFT_OUT: &[(&str, &str)] = &[("tools-call-simple-text", NO_TEST_TOOL)];

#[test]
fn revision_2025_03_26() {
    check("2025-03-26");
}

#[test]
fn revision_2025_06_18() {
    check("2025-06-18");
}

#[test]
fn revision_2025_11_25() {
    check("2025-11-25");
}

#[test]
fn revision_2026_07_28() {
    check("2026-07-28");
}

/// Runs all scenarios of a revision, and compares the failures with the list.
fn check(revision: &str) {
    let Some(part) = part("mcp_conformance") else {
        return;
    };
    let place = Place::new();
    let server = place.allstop().args("mcp serve --http 127.0.0.1:0").start();
    let url = format!("http://{}", server.line_of_stdout("listening on http://"));
    let output = Command::new("node")
        .arg(part.join(PROGRAM))
        .args([
            "server",
            "--suite",
            "all",
            "--url",
            &url,
            "--spec-version",
            revision,
        ])
        .current_dir(place.work())
        .output()
        .expect("node runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let with_sign = |sign: &str| -> BTreeSet<&str> {
        let lines = printed.lines().filter_map(|line| line.strip_prefix(sign));
        lines
            .filter_map(|line| Some(line.split_once(": ")?.0))
            .collect()
    };
    let (passed, failed) = (with_sign("✓ "), with_sign("✗ "));
    let left_out: BTreeSet<_> = LEFT_OUT.iter().map(|(scenario, _why)| *scenario).collect();
    let unexpected: Vec<_> = failed.difference(&left_out).collect();
    assert_eq!(unexpected, [&""; 0], "{printed}");
    assert!(passed.is_disjoint(&left_out), "{passed:?}\n{printed}");
    assert!(!passed.is_empty(), "{printed}");
    assert_eq!(server.end_by(Signal::TERM).code, 143);
    place.assert_nothing_runs();
}
