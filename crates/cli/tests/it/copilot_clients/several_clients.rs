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

/// The client that resumes the session answers the pending call with its handler.
#[test]
fn killed_client_is_replaced() {
    run_scenarios(Sdk::Python, &["killed_client_is_replaced"]);
}

/// After the time limit without a client, the session's work is stopped. The session can be resumed.
#[test]
fn killed_client_is_not_replaced() {
    run_scenarios(Sdk::Python, &["killed_client_is_not_replaced"]);
}

#[test]
fn deaf_client_delays_no_other_client() {
    run_scenarios(Sdk::Python, &["deaf_client_delays_no_other_client"]);
}
