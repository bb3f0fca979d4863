//! Extents (the scopes that a stop covers), causes, deadlines and the barrier in a tree of scopes.

#![expect(
    clippy::disallowed_methods,
    reason = "a thread of the test races the scope, and is joined"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_core::decision::CommitDecision;
use allstop_core::receipt::{
    ConversationEffect, EndMethod, ItemKind, ItemState, NotStoppedReason, NothingToStop,
};
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{Deadline, NotStarted, ScopeOptions, StopRequest, WorkSpec, instant_after};
use tokio::time::Instant;

use crate::{begun, by_user, future, root};

#[tokio::test(start_paused = true)]
async fn nothing_starts_after_the_barrier_closes() {
    let scope = root();
    let child = scope.child("child", ScopeOptions::default()).unwrap();
    let stop = scope.stop(by_user());
    for scope in [&scope, &child] {
        let refused = scope
            .spawn(future("late"), |_| async { unreachable!() })
            .unwrap_err();
        assert_eq!(refused.cause().unwrap().kind, CauseKind::User);
        assert!(scope.child("late", ScopeOptions::default()).is_err());
        assert!(scope.register(future("late")).is_err());
    }
    assert!(stop.await.items().is_empty());
}

#[tokio::test(start_paused = true)]
async fn wide_stop_wakes_all_waiters() {
    const PARTS: usize = 500;
    let scope = root();
    let part = |_| scope.child("part", ScopeOptions::default()).unwrap();
    let parts: Vec<_> = (0..PARTS).map(part).collect();
    for part in &parts {
        let waits = part.spawn(future("waits"), |cx| async move {
            drop(cx.stopped_at("idle").await);
        });
        drop(waits.unwrap());
    }
    for _ in 0..PARTS {
        begun().await;
    }
    let stop = scope.stop(by_user());
    assert!(parts.iter().all(allstop_scope::Scope::is_stopped));
    let receipt = stop.await;
    let heard = receipt.items().iter().filter(|item| {
        let ItemState::Stopped { how, .. } = item.state else {
            return false;
        };
        how == EndMethod::Acknowledged
    });
    assert_eq!(heard.count(), PARTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_during_acceptance_is_refused_or_in_the_receipt() {
    for _ in 0..100 {
        let scope = root();
        let started = Arc::new(AtomicUsize::new(0));
        let spawner = {
            let (scope, started) = (scope.clone(), Arc::clone(&started));
            std::thread::Builder::new().spawn(move || {
                loop {
                    let Ok(child) = scope.child("c", ScopeOptions::default()) else {
                        break;
                    };
                    let spawned = child.spawn(future("f"), |cx| async move {
                        drop(cx.stopped_at("idle").await);
                    });
                    if spawned.is_err() {
                        break;
                    }
                    started.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        while started.load(Ordering::Relaxed) < 3 {
            std::hint::spin_loop();
        }
        begun().await;
        let receipt = scope.stop(by_user()).await;
        spawner.unwrap().join().unwrap();
        assert!(receipt.quiet());
        assert_eq!(receipt.items().len(), started.load(Ordering::Relaxed));
        assert!(scope.is_quiet());
    }
}

#[tokio::test(start_paused = true)]
async fn part_keeps_its_first_cause_under_a_wider_stop() {
    let scope = root();
    let part = scope.child("part", ScopeOptions::default()).unwrap();
    part.spawn(future("slow"), |_| {
        tokio::time::sleep(Duration::from_secs(1))
    })
    .unwrap();
    scope
        .spawn(
            future("other"),
            |cx| async move { cx.stopped_at("idle").await },
        )
        .unwrap();
    let deadline = Cause::new(CauseKind::Deadline);
    begun().await;
    let narrow = part.stop(StopRequest::new(Extent::Subtree, deadline.clone()));
    let wide = scope.stop(by_user());
    let (narrow, wide) = (narrow.await, wide.await);
    assert_eq!(part.cause(), Some(deadline));
    assert_eq!(scope.cause().unwrap().kind, CauseKind::User);
    assert_eq!(narrow.items().len(), 1);
    assert_eq!(wide.items().len(), 2);
    assert!(narrow.quiet() && wide.quiet());
    assert_ne!(narrow.stop_id(), wide.stop_id());
}

#[tokio::test(start_paused = true)]
async fn stop_of_an_ended_scope_has_the_first_stops_id() {
    let scope = root();
    scope
        .spawn(future("f"), |cx| async move { cx.stopped_at("idle").await })
        .unwrap();
    begun().await;
    let first = scope.stop(by_user()).await;
    let second = scope.stop(by_user()).await;
    assert_eq!(second.outcome(), Some(NothingToStop::AlreadyEnded));
    assert_eq!(second.stop_id(), first.stop_id());
    assert!(second.items().is_empty());

    let closed = root();
    closed.close();
    assert_eq!(
        closed.stop(by_user()).await.outcome(),
        Some(NothingToStop::AlreadyEnded)
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_after_the_commit_finds_nothing_to_do() {
    let scope = root();
    let decision = Arc::new(CommitDecision::new());
    let options = ScopeOptions::default().decision(Arc::clone(&decision));
    let turn = scope.child("turn", options).unwrap();
    let permit = decision.commit().unwrap();
    let receipt = turn.stop(by_user()).await;
    assert_eq!(receipt.outcome(), Some(NothingToStop::AlreadyEnded));
    assert!(receipt.quiet() && receipt.items().is_empty());
    drop(permit);

    let decision = Arc::new(CommitDecision::new());
    let options = ScopeOptions::default().decision(Arc::clone(&decision));
    let turn = scope.child("turn", options).unwrap();
    let _receipt = turn.stop(by_user()).await;
    assert!(decision.commit().is_err());
    assert_eq!(decision.stopped_by().unwrap().kind, CauseKind::User);
}

#[tokio::test(start_paused = true)]
async fn a_stop_after_the_commit_waits_for_the_engine_that_writes_it() {
    let scope = root();
    let decision = Arc::new(CommitDecision::new());
    let options = ScopeOptions::default().decision(Arc::clone(&decision));
    let turn = scope.child("turn/7", options).unwrap();
    let engine = turn.attach_engine();
    let _permit = decision.commit().unwrap();
    let stop = turn.stop(by_user());
    assert!(!stop.account_now().quiet() && stop.try_receipt().is_none());
    assert!(!turn.is_stopped(), "the commit is written in peace");
    let asked = Instant::now();
    let writing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(engine);
    };
    let (receipt, ()) = tokio::join!(stop.receipt(), writing);
    assert_eq!(receipt.outcome(), Some(NothingToStop::AlreadyEnded));
    assert!(receipt.quiet() && receipt.items().is_empty());
    assert_eq!(asked.elapsed(), Duration::from_millis(300));
}

#[tokio::test]
async fn stop_after_the_commit_lists_running_work() {
    let scope = root();
    let decision = Arc::new(CommitDecision::new());
    let options = ScopeOptions::default().decision(Arc::clone(&decision));
    let turn = scope.child("turn/7", options).unwrap();
    let engine = turn.attach_engine();
    let unit = WorkSpec::new(ItemKind::ToolCall, "crunch").id("call_1");
    let options = ScopeOptions::default().unit(unit);
    let call = turn.child("call", options).unwrap();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let thread = WorkSpec::new(ItemKind::Thread, "crunch");
    let thread = call.spawn_blocking(thread, move |_| released.recv());
    let _permit = decision.commit().unwrap();
    for (closed, engine) in [(false, Some(engine)), (true, None)] {
        if closed {
            turn.close();
        }
        let receipt = turn.stop(by_user().grace(Duration::ZERO)).await;
        assert_eq!(receipt.outcome(), Some(NothingToStop::Ending));
        assert!(!receipt.quiet() && !receipt.cancel_observed());
        let items = receipt.items().iter();
        let whys: Vec<_> = items.map(|item| (item.kind, &item.state)).collect();
        let running = |why| ItemState::StillRunning { why };
        let call = (
            ItemKind::ToolCall,
            &running(NotStoppedReason::BlockingThread),
        );
        let writes = (
            ItemKind::Engine,
            &running(NotStoppedReason::NotAcknowledged),
        );
        if engine.is_some() {
            assert_eq!(whys, [writes, call]);
        } else {
            assert_eq!(whys, [call]);
        }
    }
    drop(release);
    let _nobody_sends = thread.unwrap().await.unwrap();
    let receipt = turn.stop(by_user()).await;
    assert!(receipt.quiet() && receipt.items().is_empty());
}

#[tokio::test(start_paused = true)]
async fn passed_deadline_stops_at_once_with_its_own_cause() {
    let scope = root();
    let at = Instant::now() + Duration::from_secs(5);
    let options = ScopeOptions::default().deadline(deadline(at, "turn deadline of 5s"));
    let turn = scope.child("turn", options).unwrap();
    turn.stopped().await;
    assert!(Instant::now() >= at);
    assert_eq!(
        turn.cause().unwrap().to_string(),
        "deadline (turn deadline of 5s)"
    );
    assert!(!scope.is_stopped());

    let never = deadline(
        instant_after(Instant::now(), Duration::MAX),
        "turn deadline of ever",
    );
    let options = ScopeOptions::default().deadline(never);
    let unlimited = scope.child("turn", options).unwrap();
    assert!(unlimited.time_left() > Some(Duration::from_hours(1)));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!unlimited.is_stopped());

    let options = ScopeOptions::default().deadline(deadline(Instant::now(), "turn deadline of 0s"));
    let turn = scope.child("turn", options).unwrap();
    let refused = turn.spawn(future("f"), |_| async {}).unwrap_err();
    assert!(matches!(refused, NotStarted::Stopped(cause) if cause.kind == CauseKind::Deadline));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_has_not_acknowledged_is_an_item() {
    let scope = root();
    let turn = scope.child("turn/7", ScopeOptions::default()).unwrap();
    let engine = turn.attach_engine();
    let stop = scope.stop(by_user());
    for receipt in [stop.account_now(), stop.receipt().await] {
        assert!(!receipt.quiet() && !receipt.cancel_observed());
        assert_eq!(receipt.quiet_after_ms(), None);
        assert_eq!(receipt.conversation(), ConversationEffect::Unknown);
        let [item] = receipt.items() else {
            panic!("{receipt:?}");
        };
        assert_eq!((item.kind, &*item.name), (ItemKind::Engine, "turn/7"));
        let why = NotStoppedReason::NotAcknowledged;
        assert_eq!(item.state, ItemState::StillRunning { why });
    }
    drop(engine);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_has_acknowledged_is_no_item() {
    let scope = root();
    let engine = scope.attach_engine();
    assert!(scope.running().is_empty(), "an engine is no work");
    engine.acknowledge(); // Without an ask, this acknowledgement proves nothing.
    let stop = scope.stop(by_user());
    assert!(!stop.account_now().quiet());
    engine.acknowledge();
    let receipt = stop.await;
    assert!(receipt.quiet() && receipt.cancel_observed());
    assert!(receipt.items().is_empty());
    assert_eq!(receipt.conversation(), ConversationEffect::Unchanged);
}

#[tokio::test(start_paused = true)]
async fn the_engine_of_a_sub_agent_is_a_part_of_its_call() {
    let scope = root();
    let unit = WorkSpec::new(ItemKind::ToolCall, "agent").id("call_1");
    let options = ScopeOptions::default().unit(unit);
    let call = scope.child("call", options).unwrap();
    let turn = call.child("turn/1", ScopeOptions::default()).unwrap();
    let engine = turn.attach_engine();
    let receipt = scope.stop(by_user()).await;
    let [item] = receipt.items() else {
        panic!("{receipt:?}");
    };
    assert_eq!((item.kind, &*item.id), (ItemKind::ToolCall, "call_1"));
    let why = NotStoppedReason::NotAcknowledged;
    assert_eq!(item.state, ItemState::StillRunning { why });
    assert!(!receipt.quiet());
    drop(engine);
}

#[tokio::test(start_paused = true)]
async fn dropped_scope_leaves_nothing_in_its_parent() {
    let scope = root();
    for _ in 0..1000 {
        let child = scope.child("child", ScopeOptions::default()).unwrap();
        child
            .spawn(future("f"), |_| async {})
            .unwrap()
            .await
            .unwrap();
    }
    begun().await;
    assert!(scope.stop(by_user()).await.items().is_empty());
}

fn deadline(at: Instant, detail: &'static str) -> Deadline {
    Deadline {
        at,
        stops: None,
        detail: detail.into(),
        extent: Extent::Turn,
        bystanders: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_wider_stop_gives_its_own_account() {
    let scope = root();
    let turn = scope.child("turn", ScopeOptions::default()).unwrap();
    turn.spawn(
        future("mine"),
        |cx| async move { cx.stopped_at("idle").await },
    )
    .unwrap();
    scope
        .spawn(future("slow other"), |_| std::future::pending::<()>())
        .unwrap();
    assert!(turn.account(Extent::Turn, vec![]).is_none());
    let began = Instant::now();
    begun().await;
    let wide = scope.stop(by_user());
    let part = turn.account(Extent::Turn, vec![]).unwrap().receipt().await;
    assert_eq!(
        began.elapsed(),
        Duration::ZERO,
        "it waits for its own work only"
    );
    assert_eq!(part.items().len(), 1);
    assert_eq!(part.stop_id(), &wide.request().stop_id);
    assert_eq!(wide.await.items().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn dropped_account_delays_no_stop_and_no_account() {
    let scope = root();
    let turn = scope.child("turn", ScopeOptions::default()).unwrap();
    let stuck = turn.register(future("stuck")).unwrap();
    let wide = scope.stop(by_user());
    drop(turn.account(Extent::Turn, vec![]));
    let wide = wide.await;
    let limit = Duration::from_mins(1);
    let again = tokio::time::timeout(limit, turn.stop(by_user()))
        .await
        .unwrap();
    let account = turn.account(Extent::Turn, vec![]).unwrap();
    let account = tokio::time::timeout(limit, account.receipt())
        .await
        .unwrap();
    for receipt in [&wide, &again, &account] {
        assert_eq!(receipt.items().len(), 1);
        assert!(!receipt.quiet());
    }
    assert_ne!(again.stop_id(), wide.stop_id());
    assert_eq!(account.stop_id(), wide.stop_id());
    drop(stuck);
}

#[tokio::test(start_paused = true)]
async fn ended_scope_keeps_its_own_stop() {
    let scope = root();
    let turn = scope.child("turn", ScopeOptions::default()).unwrap();
    turn.spawn(
        future("work"),
        |cx| async move { cx.stopped_at("idle").await },
    )
    .unwrap();
    let first = turn.stop(by_user()).await;
    let wider = scope.stop(by_user()).await;
    let again = turn.stop(by_user()).await;
    assert_eq!(again.outcome(), Some(NothingToStop::AlreadyEnded));
    assert_eq!(again.stop_id(), first.stop_id());
    assert_ne!(again.stop_id(), wider.stop_id());
}

#[tokio::test(start_paused = true)]
async fn a_hurried_stop_of_a_part_leaves_the_rest_its_grace() {
    let scope = root();
    let part = scope.child("part", ScopeOptions::default()).unwrap();
    let polite = future("polite");
    scope
        .spawn(polite, |cx| async move {
            cx.stopped_at("cleaning up").await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        })
        .unwrap();
    tokio::task::yield_now().await;
    let all = scope.stop(by_user());
    let _part = part.stop(by_user().grace(Duration::ZERO));
    let receipt = all.await;
    let ItemState::Stopped { how, .. } = &receipt.items()[0].state else {
        panic!("{receipt:?}")
    };
    assert_eq!(*how, EndMethod::Acknowledged);
}

#[tokio::test(start_paused = true)]
async fn scopes_may_be_nested_deeper_than_a_stack_is() {
    let mut chain = vec![root()];
    for _ in 0..50_000 {
        let deepest = chain.last().expect("the root");
        let child = deepest.child("one more", ScopeOptions::default()).unwrap();
        chain.push(child);
    }
    assert!(chain[0].is_quiet());
    // Drops the deepest scope first, so that no drop causes another drop.
    while chain.pop().is_some() {}
}
