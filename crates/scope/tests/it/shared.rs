//! Scopes that share the group of their parent scope. For users, these scopes behave like all other scopes.

#![expect(
    clippy::disallowed_methods,
    reason = "a thread of the test races the scope, and is joined"
)]

use std::sync::Arc;
use std::time::Duration;

use allstop_core::decision::CommitDecision;
use allstop_core::receipt::{EndMethod, ItemKind, ItemState, NothingToStop, ReceiptItem};
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{Placement, Scope, ScopeOptions, StopRequest, WorkHandle, WorkSpec};

use crate::{begun, by_user, future, root};

fn shared(above: &Scope, label: &str) -> Scope {
    let options = ScopeOptions::default().placement(Placement::Shared);
    above.child(label, options).expect("nothing is stopped")
}

fn call(turn: &Scope, id: &str) -> Scope {
    let options = ScopeOptions::default()
        .placement(Placement::Shared)
        .unit(WorkSpec::new(ItemKind::ToolCall, "wait").id(id));
    turn.child(id, options).expect("nothing is stopped")
}

fn waits(scope: &Scope) -> WorkHandle<Cause> {
    let waits = |cx: allstop_scope::WorkCx| async move { cx.stopped_at("idle").await };
    let work = scope.spawn(future("waits"), waits);
    work.expect("nothing is stopped")
}

fn ids(items: &[ReceiptItem]) -> Vec<&str> {
    items.iter().map(|item| &*item.id).collect()
}

#[tokio::test(start_paused = true)]
async fn stop_of_one_call_reaches_no_other() {
    let run = root();
    let turn = shared(&run, "turn");
    let (one, other) = (call(&turn, "call_1"), call(&turn, "call_2"));
    let (first, second) = (waits(&one), waits(&other));
    begun().await;
    let deadline = Cause::new(CauseKind::Deadline);
    let narrow = one.stop(StopRequest::new(Extent::Call, deadline.clone()));
    assert_eq!(first.await.expect("it heard"), deadline);
    let narrow = narrow.await;
    assert_eq!(ids(narrow.items()), ["call_1"]);
    // The waiters of the sibling scope have been woken, but continue to wait.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ids(&run.running()), ["call_2"]);
    assert!(!other.is_stopped() && !turn.is_stopped() && !run.is_stopped());
    let wide = run.stop(by_user());
    assert_eq!(second.await.expect("it heard").kind, CauseKind::User);
    // The work that ended because of the narrow stop is only in the receipt of the narrow stop.
    assert_eq!(ids(wide.await.items()), ["call_2"]);
    assert_eq!(one.cause(), Some(deadline));
}

#[tokio::test(start_paused = true)]
async fn the_part_of_a_wider_stop_is_accounted_for_alone() {
    let run = root();
    let turn = shared(&run, "turn");
    let call = call(&turn, "call_1");
    let (_of_the_call, beside) = (waits(&call), waits(&run));
    let slow = run.spawn(future("slow"), |_| {
        tokio::time::sleep(Duration::from_secs(1))
    });
    drop(slow.expect("nothing is stopped"));
    begun().await;
    let wide = run.stop(by_user());
    let account = turn.account(Extent::Turn, Vec::new()).expect("covered");
    let part = account.receipt().await;
    assert_eq!(ids(part.items()), ["call_1"]);
    assert!(part.quiet() && wide.try_receipt().is_none());
    drop(beside);
    let wide = wide.await;
    assert_eq!(wide.items().len(), 3, "{wide:?}");
    assert_eq!(part.stop_id(), wide.stop_id());
}

#[tokio::test(start_paused = true)]
async fn ended_scope_does_not_affect_its_siblings() {
    let run = root();
    let (first, second) = (shared(&run, "turn/1"), shared(&run, "turn/2"));
    first.close();
    let late = first.stop(by_user()).await;
    assert_eq!(late.outcome(), Some(NothingToStop::AlreadyEnded));
    assert!(first.register(future("late")).is_err());
    assert!(first.child("late", ScopeOptions::default()).is_err());
    assert!(second.register(future("in time")).is_ok());
    second.close();
    run.close();
    let late = run.stop(by_user()).await;
    assert_eq!(late.outcome(), Some(NothingToStop::AlreadyEnded));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_began_is_named_by_the_stop_of_all() {
    let run = root();
    let turn = shared(&run, "turn");
    let (waiting, closed) = (call(&turn, "call_1"), call(&turn, "call_2"));
    closed.close();
    let engine = turn.attach_engine();
    assert_eq!(ids(&run.running()), ["call_1"]);
    let stop = run.stop(by_user());
    drop(engine);
    let receipt = stop.await;
    assert_eq!(ids(receipt.items()), ["call_1"]);
    let ItemState::Stopped { how, .. } = receipt.items()[0].state else {
        panic!("{receipt:?}");
    };
    assert_eq!(how, EndMethod::NotBegun);
    assert!(waiting.is_stopped());
}

#[tokio::test(start_paused = true)]
async fn wider_stop_and_commit_of_a_shared_turn_decide_once() {
    for commit_first in [true, false] {
        let run = root();
        let decision = Arc::new(CommitDecision::new());
        let options = ScopeOptions::default()
            .placement(Placement::Shared)
            .decision(Arc::clone(&decision));
        let turn = run.child("turn", options).expect("nothing is stopped");
        if commit_first {
            assert!(decision.commit().is_ok());
            let late = turn.stop(by_user()).await;
            assert_eq!(late.outcome(), Some(NothingToStop::AlreadyEnded));
            assert!(!turn.is_stopped());
        } else {
            drop(run.stop(by_user()));
            assert!(decision.commit().is_err());
            assert!(turn.is_stopped());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_cancelled_by_stops_of_its_scope_alone() {
    let run = root();
    let (one, other) = (shared(&run, "one"), shared(&run, "other"));
    let (of_one, of_other) = (one.token(), other.token());
    let _receipt = one.stop(by_user());
    assert!(of_one.is_cancelled() && !of_other.is_cancelled());
    let _receipt = run.stop(by_user());
    assert!(of_other.is_cancelled());
}

/// The narrow stop is over, but some of its work still runs.
#[tokio::test]
async fn account_below_an_answered_stop_uses_the_running_stop() {
    let run = root();
    let call = call(&run, "call_1");
    let inner = shared(&call, "inner");
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let (begins, has_begun) = tokio::sync::oneshot::channel();
    let thread = inner.spawn_blocking(future("thread"), move |_| {
        begins.send(()).expect("the test waits");
        held.recv()
    });
    has_begun.await.expect("it begins");
    let at_once = |kind| StopRequest::new(Extent::Call, Cause::new(kind)).grace(Duration::ZERO);
    let narrow = call.stop(at_once(CauseKind::Deadline)).await;
    assert!(!narrow.quiet());
    let wide = run.stop(at_once(CauseKind::User).grace(Duration::from_hours(1)));
    let account = inner.account(Extent::Turn, Vec::new()).expect("covered");
    drop(let_go);
    let part = account.receipt().await;
    assert!(part.quiet(), "{part:?}");
    assert_eq!(part.stop_id(), &wide.request().stop_id);
    drop(thread.expect("nothing was stopped"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_that_joins_another_one_is_seen_when_it_returns() {
    for _ in 0..300 {
        let run = root();
        let parts: Vec<_> = (0..20).map(|_| shared(&run, "part")).collect();
        let _running: Vec<_> = parts.iter().map(waits).collect();
        let part = parts[7].clone();
        let joining = std::thread::Builder::new().spawn(move || {
            while part.check().is_ok() {
                std::hint::spin_loop();
            }
            let _joined = part.stop(by_user());
            part.is_stopped()
        });
        let stop = run.stop(by_user());
        let joining = joining.expect("a thread");
        assert!(joining.join().expect("it does not panic"));
        drop(stop.await);
    }
}
