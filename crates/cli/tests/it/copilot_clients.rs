//! The official Copilot SDKs for Python and JavaScript, unmodified, as processes of their own; each starts the binary.
//!
//! `cargo xtask parts` downloads them. Without Node and npm that command says so, and the tests of the SDK for JavaScript
//! do nothing.

mod script;
mod token;

use script::{Sdk, run_scenarios, run_without_arguments};

/// Scenarios of both SDKs in which everything is completed or denied.
const MESSAGES: &[&str] = &[
    "send",
    "stream",
    "three_tools",
    "permission",
    "hooks",
    "resume_and_delete",
];

#[test]
fn python_messages() {
    run_scenarios(Sdk::Python, MESSAGES);
}

#[test]
fn javascript_messages() {
    run_scenarios(Sdk::JavaScript, MESSAGES);
}

#[test]
fn python_stops() {
    let scenarios = [
        "aborted_wait",
        "cancel_one_of_three",
        "stalled_hook",
        "server_killed",
    ];
    run_scenarios(Sdk::Python, &scenarios);
}

#[test]
fn javascript_stops() {
    run_scenarios(Sdk::JavaScript, &["cancel_one_of_three"]);
}

#[test]
fn python_background() {
    let scenarios = [
        "background_shell",
        "stuck_background",
        "abort_leaves_background",
    ];
    run_scenarios(Sdk::Python, &scenarios);
}

#[test]
fn javascript_background() {
    run_scenarios(Sdk::JavaScript, &["background_shell"]);
}

#[test]
fn python_starts_the_binary_itself() {
    run_without_arguments(Sdk::Python, &["three_tools"]);
}

#[test]
fn javascript_starts_the_binary_itself() {
    run_without_arguments(Sdk::JavaScript, &["three_tools"]);
}

/// A handler hears of an abort within half a second, and the end of a client does not wait for its tools.
mod alone {
    use super::{Sdk, run_scenarios};

    #[test]
    fn python_abort_and_stop() {
        run_scenarios(Sdk::Python, &["abort", "stop"]);
    }

    #[test]
    fn javascript_abort_and_stop() {
        run_scenarios(Sdk::JavaScript, &["abort", "stop"]);
    }
}
