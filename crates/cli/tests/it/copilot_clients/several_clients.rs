//! Clients on a port: several clients in one session, killed clients, and a client that never reads.

use super::script::{Sdk, run_scenarios};

#[test]
fn clients_share_a_session() {
    run_scenarios(Sdk::Python, &["clients_share_a_session"]);
}

#[test]
fn first_answer_to_a_question_counts() {
    run_scenarios(Sdk::Python, &["first_answer_to_a_question_counts"]);
}

/// A client is killed during a call of its tool. Another client resumes the session, and its handler answers the
/// pending call.
#[test]
fn killed_client_is_replaced() {
    run_scenarios(Sdk::Python, &["killed_client_is_replaced"]);
}

/// If no other client resumes the session within the time limit, the session's work is stopped. The session can still
/// be resumed later.
#[test]
fn killed_client_is_not_replaced() {
    run_scenarios(Sdk::Python, &["killed_client_is_not_replaced"]);
}

#[test]
fn deaf_client_delays_no_other_client() {
    run_scenarios(Sdk::Python, &["deaf_client_delays_no_other_client"]);
}
