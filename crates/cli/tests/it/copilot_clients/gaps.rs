//! Shortcomings that were measured in the official Copilot runtime. The tests use the unmodified Python SDK, and show
//! that Allstop does not have these shortcomings.

use super::script::{Sdk, run_scenarios};

#[test]
fn abort_with_only_background_shell_stops_it() {
    run_scenarios(
        Sdk::Python,
        &["gap_abort_with_only_background_shell_stops_it"],
    );
}

#[test]
fn idle_follows_an_abort_of_background_work_and_the_wait_ends() {
    run_scenarios(
        Sdk::Python,
        &["gap_idle_follows_an_abort_of_background_work_and_the_wait_ends"],
    );
}

#[test]
fn abort_of_a_turn_leaves_unrelated_shell() {
    run_scenarios(Sdk::Python, &["gap_abort_of_a_turn_leaves_unrelated_shell"]);
}

#[test]
fn aborted_wait_has_its_own_result() {
    run_scenarios(Sdk::Python, &["gap_aborted_wait_has_its_own_result"]);
}

#[test]
fn aborted_call_has_its_completion_event() {
    run_scenarios(Sdk::Python, &["gap_aborted_call_has_its_completion_event"]);
}

#[test]
fn turn_can_be_stopped_after_a_timed_out_wait() {
    run_scenarios(
        Sdk::Python,
        &["gap_turn_can_be_stopped_after_a_timed_out_wait"],
    );
}

#[test]
fn no_shell_survives_stop() {
    run_scenarios(Sdk::Python, &["gap_no_shell_survives_stop"]);
}
