//! The official Copilot SDKs for Python, JavaScript and Rust, unmodified, as separate processes. The SDKs for Python
//! and JavaScript start the binary; the SDK for Rust gets its pipes.
//!
//! `cargo xtask parts` downloads the SDKs. If Node or npm is missing, this command prints a note, and the tests of the
//! JavaScript SDK are skipped.

mod gaps;
mod handover;
pub(crate) mod raw_client;
mod requests_of_users;
mod script;
mod several_clients;
mod token;

use script::{Sdk, run_scenarios, run_without_arguments};

/// Scenarios for both SDKs without a stop: all steps are completed or denied.
const MESSAGES: &[&str] = &[
    "send",
    "stream",
    "three_tools",
    "permission",
    "permission_approved",
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
fn python_session_options() {
    let scenarios = [
        "system_message_is_appended_or_replaced",
        "excluded_tools_are_not_offered",
        "attachments_are_named_to_the_model",
        "own_tool_takes_the_place_of_a_built_in_one",
        "user_is_asked_and_answers",
        "client_that_leaves_everything_out",
    ];
    run_scenarios(Sdk::Python, &scenarios);
}

#[test]
fn python_stops() {
    run_scenarios(Sdk::Python, &["stalled_hook", "server_killed"]);
}

#[test]
fn javascript_stops() {
    let scenarios = ["cancel_one_of_three", "stalled_hook", "server_killed"];
    run_scenarios(Sdk::JavaScript, &scenarios);
}

#[test]
fn rust_messages_and_stops() {
    let scenarios = [
        "send",
        "three_tools",
        "permission",
        "abort",
        "cancel_one_of_three",
        "server_killed",
    ];
    run_scenarios(Sdk::Rust, &scenarios);
}

#[test]
fn javascript_background() {
    let scenarios = ["background_shell", "background_agent", "stuck_background"];
    run_scenarios(Sdk::JavaScript, &scenarios);
}

#[test]
fn python_starts_the_binary_itself() {
    run_without_arguments(Sdk::Python, &["three_tools"]);
}

#[test]
fn javascript_starts_the_binary_itself() {
    run_without_arguments(Sdk::JavaScript, &["three_tools"]);
}

/// Tests that measure time. An abort reaches a handler within half a second, in the median within 50 ms. The end of a
/// client does not wait for the client's tools.
mod alone {
    use super::{Sdk, run_scenarios};

    #[test]
    fn python_abort_and_stop() {
        run_scenarios(
            Sdk::Python,
            &["abort", "abort_reaches_handlers_within_50_ms", "stop"],
        );
    }

    #[test]
    fn javascript_abort_and_stop() {
        run_scenarios(Sdk::JavaScript, &["abort", "stop"]);
    }
}
