//! Tests of features that users of the SDKs have requested in open issues. The tests use the unmodified Python SDK.

use super::script::{Sdk, run_scenarios};

/// An abort reaches the running tool handlers. A handler may still use its trace context, and may answer later; such an
/// answer is accepted, but has no effect.
#[test]
fn abort_reaches_the_handlers() {
    run_scenarios(
        Sdk::Python,
        &[
            "abort_does_not_wait_for_the_handlers_clean_up",
            "trace_context_outlives_an_abort",
        ],
    );
}

/// The first request to cancel a call returns true, and a repeated request returns false. The other calls and the turn
/// continue.
#[test]
fn one_call_is_cancelled_by_its_id() {
    run_scenarios(
        Sdk::Python,
        &[
            "cancel_one_of_three",
            "two_cancels_of_one_call_count_once",
            "cancel_of_a_shell_in_the_foreground",
        ],
    );
}

/// The wait for background work ends with this work. If the work never ends, the wait ends at its timeout.
#[test]
fn wait_ends_when_background_work_has_ended() {
    run_scenarios(Sdk::Python, &["background_shell", "background_agent"]);
}

#[test]
fn wait_for_stuck_background_work_times_out() {
    run_scenarios(Sdk::Python, &["stuck_background", "stuck_background_agent"]);
}

#[test]
fn wait_for_pending_reports_drained_or_timed_out() {
    run_scenarios(
        Sdk::Python,
        &["wait_for_pending_reports_drained_or_timed_out"],
    );
}

#[test]
fn interrupted_calls_do_not_brick_the_session() {
    run_scenarios(Sdk::Python, &["interrupted_calls_do_not_brick_the_session"]);
}

#[test]
fn timer_of_an_old_wait_does_not_disturb_a_later_turn() {
    run_scenarios(
        Sdk::Python,
        &["timer_of_an_old_wait_does_not_disturb_a_later_turn"],
    );
}

#[test]
fn stop_leaves_no_process_tree() {
    run_scenarios(Sdk::Python, &["stop_leaves_no_process_tree"]);
}

#[test]
fn results_that_outlive_their_turn_or_process_have_no_effect() {
    run_scenarios(
        Sdk::Python,
        &[
            "result_after_the_end_of_its_turn",
            "result_after_a_restart_of_the_server",
        ],
    );
}
