//! The steps of a stop: ask → grace (time to end) → force → account (creation of the receipt).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allstop_core::Effect;
use allstop_core::receipt::{EndMethod, EndProof, ItemKind, ItemState, NotStoppedReason};
use allstop_scope::{FORCE_MAX, ScopeOptions, WorkLost, WorkSpec};
use tokio::time::Instant;

use crate::{GRACE, begun, by_user, future, root};

#[tokio::test(start_paused = true)]
async fn work_that_observes_the_token_acknowledges() {
    let scope = root();
    scope
        .spawn(
            future("poller"),
            |cx| async move { cx.stopped_at("idle").await },
        )
        .unwrap();
    begun().await;
    let receipt = scope.stop(by_user()).await;
    assert!(receipt.quiet() && receipt.cancel_observed());
    let ItemState::Stopped { how, evidence, .. } = &receipt.items()[0].state else {
        panic!()
    };
    assert_eq!(
        (*how, evidence.checkpoint()),
        (EndMethod::Acknowledged, Some("idle"))
    );
    assert_eq!(evidence.proof(), Some(EndProof::TaskEnded));
}

#[tokio::test(start_paused = true)]
async fn work_that_ignores_the_stop_is_dropped_after_the_grace() {
    let scope = root();
    scope
        .spawn(future("deaf"), |_| std::future::pending::<()>())
        .unwrap();
    begun().await;
    let before = Instant::now();
    let receipt = scope.stop(by_user()).await;
    assert!(before.elapsed() >= GRACE && before.elapsed() < GRACE + FORCE_MAX);
    let ItemState::Stopped { how, evidence, .. } = &receipt.items()[0].state else {
        panic!()
    };
    assert_eq!(
        (*how, evidence.proof()),
        (EndMethod::Dropped, Some(EndProof::FutureDropped))
    );
}

#[tokio::test(start_paused = true)]
async fn work_that_returns_within_the_grace_is_finished() {
    let scope = root();
    let spec = future("soon done");
    scope
        .spawn(spec, |_| tokio::time::sleep(Duration::from_millis(100)))
        .unwrap();
    begun().await;
    let receipt = scope.stop(by_user()).await;
    assert!(receipt.quiet());
    assert!(matches!(
        receipt.items()[0].state,
        ItemState::Finished { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_joins_and_force_cuts_the_grace_short() {
    let scope = root();
    scope
        .spawn(future("deaf"), |_| std::future::pending::<()>())
        .unwrap();
    begun().await;
    let before = Instant::now();
    let first = scope.stop(by_user());
    let second = scope.stop(by_user().grace(Duration::ZERO));
    let (first, second) = (first.await, second.await);
    assert_eq!(first, second);
    assert!(before.elapsed() < GRACE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_that_never_checks_is_listed_and_delays_nothing() {
    let scope = root();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let spec = WorkSpec::new(ItemKind::Thread, "wedged");
    let (started_tx, started) = tokio::sync::oneshot::channel();
    scope
        .spawn_blocking(spec, move |_| {
            started_tx.send(()).unwrap();
            held.recv()
        })
        .unwrap();
    assert_eq!(scope.threads(), 1);
    started.await.unwrap();
    let receipt = scope.stop(by_user().grace(Duration::ZERO)).await;
    assert!(!receipt.quiet() && !receipt.cancel_observed());
    assert!(receipt.quiet_after_ms().is_none());
    assert_eq!(
        receipt.items()[0].state,
        ItemState::StillRunning {
            why: NotStoppedReason::BlockingThread
        }
    );
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_that_blocks_its_thread_is_named() {
    let scope = root();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (started_tx, started) = tokio::sync::oneshot::channel();
    scope
        .spawn(future("wedged"), |_| async move {
            started_tx.send(()).unwrap();
            held.recv()
        })
        .unwrap();
    started.await.unwrap();
    let receipt = scope.stop(by_user().grace(Duration::ZERO)).await;
    assert_eq!(
        receipt.items()[0].state,
        ItemState::StillRunning {
            why: NotStoppedReason::BlocksItsThread
        }
    );
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_that_checks_for_stops_acknowledges() {
    let scope = root();
    let spec = WorkSpec::new(ItemKind::Thread, "looks");
    let (started_tx, started) = tokio::sync::oneshot::channel();
    scope
        .spawn_blocking(spec, |cx| {
            started_tx.send(()).unwrap();
            while cx.checkpoint("between files").is_ok() {
                std::thread::yield_now();
            }
        })
        .unwrap();
    started.await.unwrap();
    let receipt = scope.stop(by_user()).await;
    let ItemState::Stopped { evidence, .. } = &receipt.items()[0].state else {
        panic!()
    };
    assert_eq!(evidence.proof(), Some(EndProof::ThreadEnded));
    assert_eq!(evidence.checkpoint(), Some("between files"));
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_remote_is_unreachable() {
    let scope = root();
    let asked = Arc::new(AtomicBool::new(false));
    let asked_too = Arc::clone(&asked);
    let ask = move || asked_too.store(true, Ordering::Relaxed);
    let spec = WorkSpec::new(ItemKind::Remote, "mcp::search");
    let registration = scope.register_remote(spec, ask).unwrap();
    scope
        .spawn(future("caller"), |cx| async move {
            let registration = registration;
            cx.stopped_at("waiting for the remote").await;
            drop(registration);
        })
        .unwrap();
    begun().await;
    let receipt = scope.stop(by_user()).await;
    assert!(asked.load(Ordering::Relaxed));
    assert!(!receipt.quiet() && !receipt.cancel_observed());
    assert_eq!(receipt.items()[0].state.as_str(), "unreachable");
    assert_eq!(receipt.items()[1].state.as_str(), "stopped");
}

#[tokio::test(start_paused = true)]
async fn panics_after_the_stop_are_named_and_quiet() {
    let scope = root();
    scope
        .spawn(future("bad"), |cx| async move {
            cx.scope().stopped().await;
            panic!("in the clean-up");
        })
        .unwrap();
    begun().await;
    let receipt = scope.stop(by_user()).await;
    let ItemState::Stopped { how, .. } = &receipt.items()[0].state else {
        panic!()
    };
    assert_eq!(*how, EndMethod::Failed);
}

#[tokio::test(start_paused = true)]
async fn an_early_acknowledgement_proves_nothing() {
    let scope = root();
    let (go, returns) = tokio::sync::oneshot::channel::<()>();
    scope
        .spawn(future("eager"), |cx| async move {
            cx.acknowledge("before any stop");
            // This future never observes the stop, and returns by itself.
            drop(returns.await);
        })
        .unwrap();
    begun().await;
    let stop = scope.stop(by_user());
    go.send(()).unwrap();
    let receipt = stop.await;
    let state = &receipt.items()[0].state;
    assert!(matches!(state, ItemState::Finished { .. }), "{state:?}");
}

#[tokio::test(start_paused = true)]
async fn early_account_lists_running_work() {
    let scope = root();
    scope
        .spawn(future("deaf"), |_| std::future::pending::<()>())
        .unwrap();
    begun().await;
    let stop = scope.stop(by_user());
    let now = stop.account_now();
    assert!(!now.quiet() && !now.cancel_observed());
    assert_eq!(now.items()[0].state.as_str(), "still_running");
    assert!(stop.receipt().await.quiet());
    assert!(stop.account_now().quiet());
}

#[tokio::test(start_paused = true)]
async fn future_stopped_before_its_first_poll_never_begins() {
    let scope = root();
    let call = ScopeOptions::default()
        .unit(WorkSpec::new(ItemKind::ToolCall, "post").effect(Effect::Irreversible));
    let call = scope.child("call", call).unwrap();
    let began = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&began);
    let work = call
        .spawn(future("post"), |_| async move {
            seen.store(true, Ordering::Relaxed);
        })
        .unwrap();
    let receipt = scope.stop(by_user()).await;
    assert!(!began.load(Ordering::Relaxed));
    assert_eq!(work.await, Err(WorkLost::Dropped));
    assert!(receipt.quiet());
    // The call has not begun, so its outcome is known, and the effect of a repetition does not matter.
    let ItemState::Stopped { how, .. } = &receipt.items()[0].state else {
        panic!("{receipt:?}")
    };
    assert_eq!(*how, EndMethod::NotBegun);
}

#[tokio::test]
async fn a_thread_is_called_not_begun_only_if_it_never_began() {
    // Either the thread or the stop is first; the system decides that. If the thread has begun, it is never reported as
    // not begun.
    for _ in 0..200 {
        let scope = root();
        let began = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&began);
        scope
            .spawn_blocking(future("thread"), move |_| {
                seen.store(true, Ordering::Relaxed);
            })
            .unwrap();
        let receipt = scope.stop(by_user()).await;
        assert!(receipt.quiet());
        let not_begun = receipt.items().first().is_some_and(|item| {
            matches!(
                item.state,
                ItemState::Stopped {
                    how: EndMethod::NotBegun,
                    ..
                }
            )
        });
        assert_ne!(not_begun, began.load(Ordering::Relaxed), "{receipt:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn future_has_ended_once_its_values_are_dropped() {
    /// When this value is dropped, it records whether the scope already reports quiet.
    struct Held {
        scope: allstop_scope::Scope,
        quiet: Arc<AtomicBool>,
    }
    impl Drop for Held {
        fn drop(&mut self) {
            self.quiet.store(self.scope.is_quiet(), Ordering::Relaxed);
        }
    }
    let scope = root();
    let quiet = Arc::new(AtomicBool::new(true));
    let held = Held {
        scope: scope.clone(),
        quiet: Arc::clone(&quiet),
    };
    // A hand-written future keeps its captured values after it has returned.
    let work = scope
        .spawn(future("by hand"), |_| {
            std::future::poll_fn(move |_| {
                let _held = &held;
                std::task::Poll::Ready(())
            })
        })
        .unwrap();
    work.await.unwrap();
    assert!(!quiet.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn end_of_the_grace_leaves_the_usual_time_for_force() {
    for (is_urgent, state) in [(false, "stopped"), (true, "still_running")] {
        let root = root();
        let work = root.register(future("slow")).expect("it is open");
        let stop = root.stop(by_user());
        if is_urgent {
            stop.force();
        } else {
            stop.end_grace();
        }
        let slow_end = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            drop(work);
        };
        let (receipt, ()) = tokio::join!(stop.receipt(), slow_end);
        assert_eq!(receipt.items()[0].state.as_str(), state, "{receipt:?}");
    }
}
