//! Stop of a single message that was handed to the running turn: the message is withdrawn, or it is part of that turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use allstop_core::{CauseKind, StopReason, Timestamp};
use allstop_model::{Pause, Reply};
use allstop_session::{Admission, FollowUp, Session, SessionOptions, StopTarget};

use crate::support::{Fixture, agent, fixture, in_order, text_delta, user};

fn thinking() -> Reply {
    Reply::text("thinking").pause(Pause::For(Duration::from_secs(5)))
}

async fn session(replies: Vec<Reply>) -> Fixture {
    let options = SessionOptions::default().follow_up(FollowUp::Steer);
    fixture(agent(&in_order(replies)).build(), options).await
}

#[tokio::test(start_paused = true)]
async fn message_not_yet_taken_is_withdrawn_and_ends_alone() {
    let fixture = session(vec![thinking(), Reply::text("not asked")]).await;
    let mut events = fixture.session.subscribe(None);
    let first = fixture.session.send("first").unwrap();
    text_delta(&mut events).await;
    let second = fixture.session.send("second").unwrap();
    assert_eq!(second.admission, Admission::Steers);
    let target = StopTarget::Message(second.id.clone());
    assert!(fixture.session.preview(&target).items().is_empty());
    let receipt = fixture.session.stop(&target, user()).receipt().await;
    assert!(receipt.quiet() && receipt.items().is_empty(), "{receipt:?}");
    assert!(receipt.request().target.contains(second.id.as_str()));
    let (first, second) = (first.outcome().await, second.outcome().await);
    assert_eq!(
        &*first.output, "thinking",
        "the turn continues without the message"
    );
    assert_eq!(second.stop_reason, StopReason::Cancelled);
    assert_eq!(second.cause.as_ref().unwrap().kind, CauseKind::User);
    assert!(second.turn > first.turn);
    assert_eq!(fixture.said().await, ["user: first", "model: thinking"]);
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_taken_message_stops_its_turn() {
    let both = Reply::text("both")
        .pause(Pause::Forever)
        .and_text("never shown");
    let fixture = session(vec![thinking(), both]).await;
    let mut events = fixture.session.subscribe(None);
    let first = fixture.session.send("first").unwrap();
    text_delta(&mut events).await;
    let second = fixture.session.send("second").unwrap();
    assert_eq!(second.admission, Admission::Steers);
    assert_eq!(text_delta(&mut events).await, "both");
    let target = StopTarget::Message(second.id.clone());
    assert_eq!(fixture.session.preview(&target).items().len(), 1);
    let receipt = fixture.session.stop(&target, user()).receipt().await;
    assert!(receipt.quiet() && receipt.cancel_observed(), "{receipt:?}");
    assert_eq!(&*receipt.request().target, "session/s1/turn/1");
    assert_eq!(receipt.items().len(), 1, "the model's call");
    let (first, second) = (first.outcome().await, second.outcome().await);
    assert_eq!(first.stop_reason, StopReason::Cancelled);
    assert_eq!(
        (second.turn, second.stop_reason),
        (first.turn, first.stop_reason)
    );
    assert!(fixture.said().await.is_empty());
    fixture.close().await;
}

/// The turn reads the clock between taking a message and adding it to its draft. Here a stop arrives at that point: the
/// draft refuses the message, which is not lost.
#[tokio::test(start_paused = true)]
async fn message_refused_by_a_stopped_draft_comes_next() {
    let session_to_stop = Arc::new(OnceLock::<Session>::new());
    let is_armed = Arc::new(AtomicBool::new(false));
    let (stops, armed) = (Arc::clone(&session_to_stop), Arc::clone(&is_armed));
    let clock = move || {
        if armed.swap(false, Ordering::SeqCst) {
            let session = stops.get().expect("it is there");
            drop(session.stop(&StopTarget::Turn, user()));
        }
        Timestamp::from_unix_ms(0)
    };
    let model = in_order(vec![thinking(), Reply::text("two")]);
    let agent = agent(&model).clock(Arc::new(clock)).build();
    let options = SessionOptions::default().follow_up(FollowUp::Steer);
    let fixture = fixture(agent, options).await;
    session_to_stop.set(fixture.session.clone()).unwrap();
    let mut events = fixture.session.subscribe(None);
    let first = fixture.session.send("first").unwrap();
    text_delta(&mut events).await;
    let second = fixture.session.send("second").unwrap();
    assert_eq!(second.admission, Admission::Steers);
    is_armed.store(true, Ordering::SeqCst);
    let (first, second) = (first.outcome().await, second.outcome().await);
    assert_eq!(first.stop_reason, StopReason::Cancelled);
    assert_eq!(
        first.steps, 1,
        "its answer was whole: the next step was stopped"
    );
    assert_eq!(second.stop_reason, StopReason::Completed, "{second:?}");
    assert_eq!(&*second.output, "two");
    assert!(second.turn > first.turn);
    assert_eq!(fixture.said().await, ["user: second", "model: two"]);
    fixture.close().await;
}
