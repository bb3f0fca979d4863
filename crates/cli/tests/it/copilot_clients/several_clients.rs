//! Clients on a port: several on one session, killed ones, and one that never reads.

use super::script::{Sdk, run_scenarios};

#[test]
fn clients_share_a_session() {
    run_scenarios(Sdk::Python, &["clients_share_a_session"]);
}

#[test]
fn first_answer_to_a_question_counts() {
    run_scenarios(Sdk::Python, &["first_answer_to_a_question_counts"]);
}

/// Its pending call is answered by the handler of the client that resumes the session.
#[test]
fn killed_client_is_replaced() {
    run_scenarios(Sdk::Python, &["killed_client_is_replaced"]);
}

/// After the time without a client its work is stopped; the session can be resumed.
#[test]
fn killed_client_is_not_replaced() {
    run_scenarios(Sdk::Python, &["killed_client_is_not_replaced"]);
}

#[test]
fn deaf_client_holds_up_nobody() {
    run_scenarios(Sdk::Python, &["deaf_client_holds_up_nobody"]);
}
