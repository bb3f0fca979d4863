//! Each stop has one receipt, for all callers that request it and in the log.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::AgentEvent;
use allstop_core::receipt::{ItemKind, NothingToStop};
use allstop_core::record::SessionRecord;
use allstop_core::{CallId, Extent, Receipt, StopReason};
use allstop_log::MemoryLog;
use allstop_model::{Pause, Reply};
use allstop_scope::{Ending, WorkSpec};
use allstop_session::{SessionEventKind, SessionOptions, StopTarget};
use allstop_testkit::{FaultyLog, LogFault, ToolFn};
use serde_json::json;
use tokio::time::sleep;

use crate::background::{asks_for_a_build, builds};
use crate::support::{
    Fixture, agent, fixture, fixture_in, in_order, text_delta, tools, until, user,
};

/// Receipts in the log that are not in the ending of a turn.
async fn stored(fixture: &Fixture) -> Vec<Arc<Receipt>> {
    let records = fixture.records().await.into_iter();
    let receipts = records.filter_map(|record| match record {
        SessionRecord::Stopped { receipt } => Some(receipt),
        _ => None,
    });
    receipts.collect()
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_turn_and_its_background_work_is_one_stop() {
    let mut replies = asks_for_a_build();
    replies.push(Reply::text("half").pause(Pause::Forever));
    let (source, _gate) = builds(replies);
    let fixture = fixture(source, SessionOptions::default()).await;
    fixture.session.send("build it").unwrap().outcome().await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("and now?").unwrap();
    assert_eq!(text_delta(&mut events).await, "half");

    let everything = StopTarget::TurnAndBackground;
    let first = fixture.session.stop(&everything, user());
    let second = fixture.session.stop(&everything, user());
    let (receipt, joined) = tokio::join!(first.receipt(), second.receipt());
    assert!(Arc::ptr_eq(&receipt, &joined));
    assert_eq!(receipt.request().extent, Extent::TurnAndBackground);
    let kinds: Vec<_> = receipt.items().iter().map(|item| item.kind).collect();
    assert_eq!(kinds, [ItemKind::Background, ItemKind::ModelCall]);
    let outcome = sent.outcome().await;
    let part = outcome.receipt.as_ref().unwrap();
    assert_eq!(part.stop_id(), receipt.stop_id());
    assert_eq!(receipt.usage(), outcome.usage);
    // The log contains the receipt before the caller receives it.
    assert_eq!(stored(&fixture).await, [Arc::clone(&receipt)]);
    assert_eq!(fixture.state().await.last_receipt(), Some(&receipt));
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_turn_alone_is_in_its_ending() {
    let model = in_order(vec![Reply::text("half").pause(Pause::Forever)]);
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("go").unwrap();
    assert_eq!(text_delta(&mut events).await, "half");
    let stop = fixture.session.stop(&StopTarget::Turn, user());
    let (receipt, outcome) = tokio::join!(stop.receipt(), sent.outcome());
    assert_eq!(outcome.receipt, Some(Arc::clone(&receipt)));
    assert_eq!(fixture.state().await.last_receipt(), Some(&receipt));
    assert!(stored(&fixture).await.is_empty());
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn stop_of_background_work_alone_is_in_the_log() {
    let (source, _gate) = builds(asks_for_a_build());
    let fixture = fixture(source, SessionOptions::default()).await;
    fixture.session.send("build it").unwrap().outcome().await;
    let target = StopTarget::Background("bg_1".into());
    let receipt = fixture.session.stop(&target, user()).receipt().await;
    assert_eq!(&*receipt.request().target, "session/s1/bg_1");
    assert_eq!(stored(&fixture).await, [receipt]);
    // A second stop does nothing, and the end of the session stops no work: after both, the first receipt is still the
    // last receipt in the log.
    let again = fixture.session.stop(&target, user()).receipt().await;
    assert_eq!(again.outcome(), Some(NothingToStop::AlreadyEnded));
    drop(fixture.session.close().await);
    assert_eq!(stored(&fixture).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn end_of_a_session_that_stops_work_has_its_receipt_in_the_log() {
    let (source, _gate) = builds(asks_for_a_build());
    let fixture = fixture(source, SessionOptions::default()).await;
    fixture.session.send("build it").unwrap().outcome().await;
    let receipt = fixture.session.close().await;
    assert_eq!(receipt.items().len(), 1, "{receipt:?}");
    assert_eq!(stored(&fixture).await, [receipt]);
}

/// Work that outlasts the stop of its session can end in a later stop, whose receipt is the last receipt of the session.
#[tokio::test(start_paused = true)]
async fn receipt_of_a_stop_after_the_stop_of_the_session_is_in_the_log() {
    let model = in_order(vec![Reply::text("").call("thread", json!({}))]);
    let (sender, mut threads) = tokio::sync::mpsc::unbounded_channel();
    let thread = ToolFn::new("thread", move |call| {
        let work = WorkSpec::new(ItemKind::Process, "thread");
        let thread = call.scope.register_thread(work);
        let sent = sender.send(thread.expect("nothing is stopped"));
        assert!(sent.is_ok());
        std::future::pending::<String>()
    });
    let agent = agent(&model).tools(tools(vec![thread])).build();
    let fixture = fixture(agent, SessionOptions::default()).await;
    let _sent = fixture.session.send("go").unwrap();
    let thread = threads.recv().await.expect("a thread");
    let stop = fixture.session.stop(&StopTarget::Session, user());
    stop.force();
    let first = stop.receipt().await;
    assert!(!first.quiet(), "{first:?}");
    sleep(Duration::from_millis(500)).await;
    let stop = fixture.session.stop(&StopTarget::Process, user());
    sleep(Duration::from_millis(100)).await;
    thread.finish(Ending::Returned);
    let second = stop.receipt().await;
    assert!(second.quiet() && second.stop_id() != first.stop_id());
    fixture.session.closed().await;
    assert!(!fixture.session.has_unstored_receipt());
    assert_eq!(fixture.state().await.last_receipt(), Some(&second));
}

/// The running turn uses the log, so the caller receives the receipt before the log contains it.
#[tokio::test(start_paused = true)]
async fn receipt_of_a_call_is_in_the_log_after_its_turn() {
    let model = in_order(vec![
        Reply::text("").call("wait", json!({})),
        Reply::text("half").pause(Pause::Forever),
    ]);
    let wait = ToolFn::new("wait", |_| std::future::pending::<String>());
    let agent = agent(&model).tools(tools(vec![wait])).build();
    let fixture = fixture(agent, SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let _sent = fixture.session.send("go").unwrap();
    let call: CallId = until(&mut events, |event| match &event.kind {
        SessionEventKind::Live(AgentEvent::ToolStarted { call_id, .. }) => Some(call_id.clone()),
        _ => None,
    })
    .await;
    let of_call = fixture
        .session
        .stop(&StopTarget::Call(call.clone()), user())
        .receipt()
        .await;
    assert_eq!(of_call.request().extent, Extent::Call);
    assert_eq!(of_call.items().len(), 1, "{of_call:?}");
    assert!(stored(&fixture).await.is_empty());
    assert_eq!(text_delta(&mut events).await, "half");
    let stop = fixture.session.stop(&StopTarget::Turn, user());
    drop(stop.receipt().await);
    // On a paused clock, work that ends at the moment of the next stop would count as work of that stop.
    tokio::time::advance(Duration::from_millis(1)).await;
    drop(fixture.session.close().await);
    assert_eq!(stored(&fixture).await, [of_call]);
}

#[tokio::test(start_paused = true)]
async fn stop_during_a_commit_finds_nothing_and_is_not_stored() {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let model = in_order(vec![Reply::text("done")]);
    let options = SessionOptions::default();
    let fixture = fixture_in(Arc::clone(&log) as _, agent(&model).build(), options).await;
    log.fail_at("turn_committed", LogFault::Hold);
    let sent = fixture.session.send("go").unwrap();
    log.reached().await;
    let stop = fixture.session.stop(&StopTarget::TurnAndBackground, user());
    log.release().await;
    let receipt = stop.receipt().await;
    assert_eq!(
        receipt.outcome(),
        Some(NothingToStop::AlreadyEnded),
        "{receipt:?}"
    );
    assert!(!receipt.cancel_observed());
    let outcome = sent.outcome().await;
    assert_eq!(outcome.stop_reason, StopReason::Completed);
    assert_eq!(fixture.state().await.last_receipt(), None);
    fixture.close().await;
}
