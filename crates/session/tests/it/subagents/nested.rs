//! Calls of sub-agents: each has a unique name in receipts, and can be stopped alone by that name.

use allstop_core::receipt::NothingToStop;
use allstop_core::{CallId, Message};
use allstop_session::{SessionOptions, StopTarget};

use super::stage;
use crate::support::{Fixture, fixture, user};

fn running(fixture: &Fixture, target: &StopTarget) -> Vec<String> {
    let preview = fixture.session.preview(target);
    let items = preview.items().iter();
    items.map(|item| item.id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn sub_agent_call_stops_alone_by_its_path() {
    let mut stage = stage();
    let fixture = fixture(stage.source, SessionOptions::default()).await;
    let sent = fixture.session.send("in front").unwrap();
    stage.waiting.recv().await.expect("it waits");
    let ids = running(&fixture, &StopTarget::Turn);
    let path = "call_1_1/call_1_1/call_1_1";
    assert_eq!(ids, ["call_1_1", "call_1_1/call_1_1", path]);
    let call = CallId::from(path);
    assert_eq!(running(&fixture, &StopTarget::Call(call.clone())), [path]);

    let never = CallId::from("call_1_1/call_9_9");
    let never = fixture
        .session
        .stop(&StopTarget::Call(never.clone()), user())
        .receipt()
        .await;
    assert_eq!(never.outcome(), Some(NothingToStop::NotFound));
    let receipt = fixture
        .session
        .stop(&StopTarget::Call(call.clone()), user())
        .receipt()
        .await;
    assert!(receipt.quiet(), "{receipt:?}");
    let items: Vec<_> = receipt.items().iter().map(|item| &*item.id).collect();
    assert_eq!(items, [path]);
    // The agent of the call received a result and answered, and so did its ancestors.
    let outcome = sent.outcome().await;
    assert!(outcome.is_completed(), "{outcome:?}");
    assert_eq!(&*outcome.output, "it goes on");
    let again = fixture
        .session
        .stop(&StopTarget::Call(call.clone()), user())
        .receipt()
        .await;
    assert_eq!(again.outcome(), Some(NothingToStop::AlreadyEnded));
    assert!(again.items().is_empty());

    // The conversation contains only the ids that the model has chosen, not the longer names in receipts.
    let folded = fixture.state().await;
    for message in &folded.conversation().messages {
        if let Message::Tool(result) = &**message {
            assert_eq!(result.call_id.as_str(), "call_1_1");
        }
    }
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn background_sub_agent_call_stops_alone_by_its_path() {
    let mut stage = stage();
    let fixture = fixture(stage.source, SessionOptions::default()).await;
    let sent = fixture.session.send("in the background").unwrap();
    sent.outcome().await;
    stage.waiting.recv().await.expect("it runs on");
    let path = "bg_1/call_1_1/call_1_1";
    let ids = running(&fixture, &StopTarget::TurnAndBackground);
    assert_eq!(ids, ["bg_1", "bg_1/call_1_1", path]);
    let call = CallId::from(path);
    let receipt = fixture
        .session
        .stop(&StopTarget::Call(call.clone()), user())
        .receipt()
        .await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(&*receipt.items()[0].id, path);
    let work = fixture.session.background().remove(0);
    let end = work.ended().await;
    assert_eq!(end.answer.as_deref(), Some("it is 42"));
    fixture.close().await;
}
