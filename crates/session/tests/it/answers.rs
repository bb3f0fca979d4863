//! Messages with ids chosen by their sender, and the search for their answers in the log.

use allstop_core::TurnNumber;
use allstop_log::LoggedAnswer;
use allstop_model::{Pause, Reply};
use allstop_session::{FollowUp, NewMessage, SessionOptions, StopTarget};

use crate::support::{agent, fixture, in_order, user};

#[tokio::test(start_paused = true)]
async fn answer_is_found_by_the_id_of_its_message() {
    let model = in_order(vec![
        Reply::text("one"),
        Reply::text("two"),
        Reply::text("").pause(Pause::Forever),
    ]);
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    let session = &fixture.session;
    for id in ["a", "b"] {
        let message = NewMessage::from("go").id(id.into());
        let sent = session.send(message.policy(FollowUp::Enqueue)).unwrap();
        assert_eq!(sent.id.as_str(), id);
        assert!(sent.outcome().await.is_completed());
    }
    let stopped = session.send(NewMessage::from("go").id("c".into())).unwrap();
    tokio::task::yield_now().await;
    session.stop(&StopTarget::Turn, user()).receipt().await;
    assert!(!stopped.outcome().await.is_completed());
    for (id, expected) in [
        ("a", LoggedAnswer::Committed("one".into())),
        ("b", LoggedAnswer::Committed("two".into())),
        ("c", LoggedAnswer::NotCommitted(TurnNumber(3))),
        ("unknown", LoggedAnswer::NotBegun),
    ] {
        let answer = session.committed_answer(&id.into()).await.unwrap();
        assert_eq!(answer, expected, "{id}");
    }
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn closed_session_reports_that_it_is_closed() {
    let model = in_order(Vec::new());
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    assert!(!fixture.session.is_closed());
    fixture.session.close().await;
    assert!(fixture.session.is_closed());
    fixture.close().await;
}
