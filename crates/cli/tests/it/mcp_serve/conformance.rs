//! The official conformance suite of MCP against `allstop mcp serve --http`.
//!
//! The suite is made for a server with certain tools, prompts and resources. A scenario that needs one of them is in the
//! list of left-out scenarios, with its reason. Each other scenario must pass, and an entry of a scenario that passes
//! must be removed.
//!
//! `cargo xtask parts` downloads the suite. If Node and npm are missing, that command skips the suite and prints the
//! reason. In that case these tests do nothing.

use std::process::Command;

use crate::support::parts::part;
use crate::support::place::repository;
use crate::support::{Place, Signal};

const PROGRAM: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

/// A scenario that cannot pass.
struct LeftOut {
    scenario: &'static str,
    /// Number of checks that fail. The other checks of the scenario pass.
    failed: usize,
    #[expect(dead_code, reason = "people read it")]
    reason: &'static str,
}

impl LeftOut {
    const fn new(scenario: &'static str, failed: usize, reason: &'static str) -> Self {
        Self {
            scenario,
            failed,
            reason,
        }
    }
}

const NO_TEST_TOOL: &str = "calls a tool that only a server for this suite has";
const NO_RESOURCES: &str = "the server has no resources, and does not declare them";
const NO_PROMPTS: &str = "the server has no prompts, and does not declare them";
const NO_LOGGING: &str = "the server sends no log messages, and does not declare them";
const NO_COMPLETION: &str = "the server completes no arguments, and does not declare it";
const NO_HEADER_ARGUMENTS: &str = "no argument of the tools is also a header of the request";

const LEFT_OUT: &[LeftOut] = &[
    LeftOut::new("tools-call-simple-text", 1, NO_TEST_TOOL),
    LeftOut::new("tools-call-image", 1, NO_TEST_TOOL),
    LeftOut::new("tools-call-audio", 1, NO_TEST_TOOL),
    LeftOut::new("tools-call-embedded-resource", 1, NO_TEST_TOOL),
    LeftOut::new("tools-call-mixed-content", 1, NO_TEST_TOOL),
    LeftOut::new("tools-call-with-logging", 1, NO_TEST_TOOL),
    LeftOut::new("tools-call-error", 1, NO_TEST_TOOL),
    LeftOut::new("tools-call-with-progress", 1, NO_TEST_TOOL),
    LeftOut::new("tools-call-sampling", 1, NO_TEST_TOOL),
    LeftOut::new("tools-call-elicitation", 1, NO_TEST_TOOL),
    LeftOut::new("json-schema-2020-12", 1, NO_TEST_TOOL),
    LeftOut::new("elicitation-sep1034-defaults", 1, NO_TEST_TOOL),
    LeftOut::new("elicitation-sep1330-enums", 1, NO_TEST_TOOL),
    LeftOut::new("input-required-result-basic-elicitation", 1, NO_TEST_TOOL),
    LeftOut::new("input-required-result-basic-sampling", 1, NO_TEST_TOOL),
    LeftOut::new("input-required-result-basic-list-roots", 1, NO_TEST_TOOL),
    LeftOut::new("input-required-result-request-state", 1, NO_TEST_TOOL),
    LeftOut::new(
        "input-required-result-multiple-input-requests",
        1,
        NO_TEST_TOOL,
    ),
    LeftOut::new("input-required-result-multi-round", 1, NO_TEST_TOOL),
    LeftOut::new("input-required-result-result-type", 1, NO_TEST_TOOL),
    LeftOut::new("input-required-result-tampered-state", 1, NO_TEST_TOOL),
    LeftOut::new("input-required-result-capability-check", 1, NO_TEST_TOOL),
    LeftOut::new("server-stateless", 4, NO_TEST_TOOL),
    LeftOut::new("resources-list", 1, NO_RESOURCES),
    LeftOut::new("resources-read-text", 1, NO_RESOURCES),
    LeftOut::new("resources-read-binary", 1, NO_RESOURCES),
    LeftOut::new("resources-templates-read", 1, NO_RESOURCES),
    LeftOut::new("resources-subscribe", 1, NO_RESOURCES),
    LeftOut::new("resources-unsubscribe", 1, NO_RESOURCES),
    LeftOut::new("prompts-list", 1, NO_PROMPTS),
    LeftOut::new("prompts-get-simple", 1, NO_PROMPTS),
    LeftOut::new("prompts-get-with-args", 1, NO_PROMPTS),
    LeftOut::new("prompts-get-embedded-resource", 1, NO_PROMPTS),
    LeftOut::new("prompts-get-with-image", 1, NO_PROMPTS),
    LeftOut::new("input-required-result-non-tool-request", 1, NO_PROMPTS),
    // Lists of prompts, of resources and of templates of resources.
    LeftOut::new("caching", 3, NO_RESOURCES),
    LeftOut::new("logging-set-level", 1, NO_LOGGING),
    LeftOut::new("completion-complete", 1, NO_COMPLETION),
    LeftOut::new(
        "http-custom-header-server-validation",
        5,
        NO_HEADER_ARGUMENTS,
    ),
];

#[test]
fn revision_2025_03_26() {
    check("2025-03-26", 1);
}

#[test]
fn revision_2025_06_18() {
    check("2025-06-18", 4);
}

#[test]
fn revision_2025_11_25() {
    check("2025-11-25", 7);
}

#[test]
fn revision_2026_07_28() {
    check("2026-07-28", 9);
}

/// Runs all scenarios of a revision, and compares the failures with the list. This number of scenarios passes.
fn check(revision: &str, scenarios: usize) {
    let Some(part) = part("mcp_conformance") else {
        return;
    };
    let place = Place::new();
    let server = place.allstop().args("mcp serve --http 127.0.0.1:0").start();
    let url = format!("http://{}", server.line_of_stdout("listening on http://"));
    let patch = repository().join("crates/tools/tests/mcp/conformance/fs_of_node_22.mjs");
    let output = Command::new("node")
        .arg("--import")
        .arg(patch)
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
    let mut passed = 0;
    for line in printed.lines() {
        let Some((scenario, counts)) = line.split_once(": ") else {
            continue;
        };
        if let Some(scenario) = scenario.strip_prefix("✓ ") {
            passed += 1;
            let left_out = LEFT_OUT
                .iter()
                .any(|left_out| left_out.scenario == scenario);
            assert!(!left_out, "`{scenario}` passes: remove it from the list");
        } else if let Some(scenario) = scenario.strip_prefix("✗ ") {
            let mut left_out = LEFT_OUT.iter();
            let left_out = left_out.find(|left_out| left_out.scenario == scenario);
            let expected = left_out.map_or(0, |left_out| left_out.failed);
            let expected = format!(", {expected} failed");
            assert!(
                counts.ends_with(&expected),
                "{scenario}: {counts}\n{printed}"
            );
        }
    }
    assert_eq!(passed, scenarios, "{printed}");
    assert_eq!(server.end_by(Signal::TERM).code, 143);
    place.assert_nothing_runs();
}
