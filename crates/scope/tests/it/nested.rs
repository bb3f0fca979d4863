//! Units inside units: their paths, and scopes that move from one unit to another. A unit is a scope whose whole work
//! is one item of a receipt.

use std::time::Duration;

use allstop_core::Effect;
use allstop_core::receipt::{EndMethod, ItemKind, ItemState, NothingToStop};
use allstop_core::{Cause, CauseKind};
use allstop_scope::{Deadline, NotStarted, Placement, Scope, ScopeOptions, WorkSpec};
use tokio::time::Instant;

use super::{begun, by_user, future, root};

fn unit(parent: &Scope, kind: ItemKind, id: &str) -> Scope {
    let unit = WorkSpec::new(kind, "a name")
        .id(id)
        .effect(Effect::ReadOnly);
    let options = ScopeOptions::default().unit(unit);
    parent.child(id, options).expect("nothing is stopped")
}

fn movable(parent: &Scope) -> Scope {
    let options = ScopeOptions::default().placement(Placement::Movable);
    parent.child("agent", options).expect("nothing is stopped")
}

fn ids(items: &[allstop_core::receipt::ReceiptItem]) -> Vec<&str> {
    items.iter().map(|item| &*item.id).collect()
}

/// Starts work that runs until a stop.
fn waits(scope: &Scope) {
    let work = scope.spawn(future("waits"), |cx| async move {
        cx.stopped_at("wait").await;
    });
    drop(work.expect("nothing is stopped"));
}

#[tokio::test]
async fn nested_unit_is_found_by_the_path_of_both_units() {
    let turn = root();
    let outer = unit(&turn, ItemKind::ToolCall, "call_1");
    let between = outer.child("turn", ScopeOptions::default()).unwrap();
    let inner = unit(&between, ItemKind::ToolCall, "call_1");
    let sibling = unit(&turn, ItemKind::ToolCall, "call_10");
    for scope in [&outer, &inner, &sibling] {
        waits(scope);
    }
    begun().await;
    assert_eq!(ids(&turn.running()), ["call_1", "call_1/call_1", "call_10"]);
    assert_eq!(between.item_path().as_deref(), Some("call_1"));
    assert_eq!(inner.item_path().as_deref(), Some("call_1/call_1"));
    assert_eq!(turn.item_path(), None);
    assert!(turn.find_unit("call_1/call_2").is_none());
    assert!(turn.find_unit("call").is_none());
    let found = turn.find_unit("call_1/call_1").expect("it is there");
    let receipt = found.stop(by_user()).await;
    assert_eq!(ids(receipt.items()), ["call_1/call_1"]);
    assert!(receipt.quiet() && !outer.is_stopped());
    let receipt = turn.stop(by_user()).await;
    assert_eq!(ids(receipt.items()), ["call_1", "call_10"]);
    let again = turn.find_unit("call_1/call_1").expect("it is there");
    let receipt = again.stop(by_user()).await;
    assert_eq!(receipt.outcome(), Some(NothingToStop::AlreadyEnded));
}

#[tokio::test(start_paused = true)]
async fn scopes_nest_deeper_than_a_stack_is() {
    let root = root();
    let mut deepest = root.clone();
    for _ in 0..20_000 {
        deepest = deepest.child("deeper", ScopeOptions::default()).unwrap();
    }
    waits(&deepest);
    begun().await;
    let receipt = root.stop(by_user()).await;
    assert!(receipt.quiet() && receipt.items().len() == 1);
    let second = root.stop(by_user()).await;
    assert_eq!(second.outcome(), Some(NothingToStop::AlreadyEnded));
    drop(root);
    // This is the last handle of all these scopes.
    drop(deepest);
}

#[tokio::test(start_paused = true)]
async fn moved_scope_keeps_its_children_but_no_outer_deadline() {
    let session = root();
    let deadline = Deadline {
        at: Instant::now() + Duration::from_secs(1),
        stops: None,
        detail: "turn deadline".into(),
        extent: allstop_core::Extent::Turn,
        bystanders: Vec::new(),
    };
    let options = ScopeOptions::default().deadline(deadline);
    let turn = session.child("turn", options).unwrap();
    let call = unit(&turn, ItemKind::ToolCall, "call_1");
    let agent = movable(&call);
    let inner = unit(&agent, ItemKind::ToolCall, "call_2");
    let background = unit(&session, ItemKind::Background, "bg_1");
    waits(&agent);
    waits(&inner);
    begun().await;
    assert_eq!(ids(&turn.running()), ["call_1", "call_1/call_2"]);
    assert!(inner.time_left().is_some());
    agent.move_below(&background).expect("nothing is stopped");
    assert!(turn.is_quiet() && inner.time_left().is_none());
    assert_eq!(ids(&background.running()), ["call_1/call_2", "bg_1"]);
    // Running work keeps its path. Work that begins after the move has the path of its new position.
    let later = unit(&agent, ItemKind::ToolCall, "call_3");
    assert_eq!(later.item_path().as_deref(), Some("bg_1/call_3"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(turn.is_stopped() && !agent.is_stopped() && !inner.is_stopped());
    let receipt = session.stop(by_user()).await;
    assert!(receipt.quiet() && inner.is_stopped());
    let found = ids(receipt.items());
    assert_eq!(found, ["call_1/call_2", "bg_1", "bg_1/call_3"]);
    assert_eq!(inner.cause(), Some(Cause::new(CauseKind::User)));
}

#[tokio::test]
async fn stopped_scope_does_not_move() {
    let session = root();
    let (call, background) = (
        unit(&session, ItemKind::ToolCall, "call_1"),
        unit(&session, ItemKind::Background, "bg_1"),
    );
    let agent = movable(&call);
    waits(&agent);
    begun().await;
    let stop = call.stop(by_user());
    let refused = agent.move_below(&background);
    assert!(matches!(refused, Err(NotStarted::Stopped(_))));
    assert_eq!(ids(stop.await.items()), ["call_1"]);
    assert!(background.stop(by_user()).await.items().is_empty());

    let (agent, ended) = (
        movable(&session),
        session.child("closed", ScopeOptions::default()),
    );
    let ended = ended.unwrap();
    ended.close();
    assert_eq!(agent.move_below(&ended), Err(NotStarted::Closed));
    waits(&agent);
    assert_eq!(session.running().len(), 1);
    drop(session.stop(by_user()).await);
}

#[tokio::test]
async fn work_begun_elsewhere_is_not_reported_as_not_begun() {
    let scope = root();
    let work = scope.spawn_begun(future("goes on"), |cx| async move {
        cx.stopped_at("wait").await;
    });
    let receipt = scope.stop(by_user()).await;
    work.unwrap().await.expect("it was polled");
    assert_eq!(receipt.items()[0].state.as_str(), "stopped");
    assert!(format!("{:?}", receipt.items()[0].state).contains("Acknowledged"));
}

#[tokio::test]
async fn preview_and_receipt_list_a_call_that_has_not_begun() {
    let turn = root();
    let running = unit(&turn, ItemKind::ToolCall, "call_1");
    let waiting = unit(&turn, ItemKind::ToolCall, "call_2");
    let alone = unit(&turn, ItemKind::ToolCall, "call_3");
    let over = unit(&turn, ItemKind::ToolCall, "call_4");
    let not_made = unit(&turn, ItemKind::Background, "bg_1");
    over.close();
    waits(&running);
    begun().await;
    assert_eq!(ids(&turn.running()), ["call_1", "call_2", "call_3"]);

    let receipt = alone.stop(by_user()).await;
    assert_eq!(ids(receipt.items()), ["call_3"]);
    let receipt = turn.stop(by_user()).await;
    assert!(receipt.quiet());
    assert_eq!(ids(receipt.items()), ["call_1", "call_2"], "{receipt:?}");
    let ItemState::Stopped { how, .. } = &receipt.items()[1].state else {
        panic!("{receipt:?}")
    };
    assert_eq!(*how, EndMethod::NotBegun);
    let refused = waiting.child("below", ScopeOptions::default());
    assert!(matches!(refused, Err(NotStarted::Stopped(_))));
    drop(not_made);
}
