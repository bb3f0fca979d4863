//! A runtime that shuts down during a stop: the stop is answered, and the tree is freed. A system without a thread for a
//! runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use allstop_core::{Extent, Timestamp};
use allstop_scope::{RootOptions, Scope, ScopeOptions, Stop};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use super::{by_user, future};

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    builder.build().expect("a thread is all it needs")
}

/// A stop that waits for work, while the work does not observe the stop. The tree has a reference to the returned clock
/// until the tree is freed.
fn stop_under_way(
    runtime: &Runtime,
    of_part: impl FnOnce(&Scope),
) -> (Scope, Stop, Arc<AtomicI64>) {
    let clock = Arc::new(AtomicI64::new(0));
    let ticks = Arc::clone(&clock);
    runtime.block_on(async move {
        let options = RootOptions::single_runtime().now(Arc::new(move || {
            Timestamp::from_unix_ms(ticks.fetch_add(1, Ordering::Relaxed))
        }));
        let root = Scope::root("test", options);
        let part = root.child("part", ScopeOptions::default());
        let part = part.expect("nothing is stopped yet");
        let deaf = part.spawn(future("deaf"), |_| std::future::pending::<()>());
        drop(deaf.expect("nothing is stopped yet"));
        tokio::task::yield_now().await;
        let stop = root.stop(by_user());
        tokio::task::yield_now().await;
        of_part(&part);
        (root, stop, clock)
    })
}

#[test]
fn end_of_the_runtime_answers_its_stop_for_other_runtimes() {
    let runtime = runtime();
    let (root, stop, _) = stop_under_way(&runtime, |_| ());
    assert!(stop.try_receipt().is_none());
    drop(runtime);
    let receipt = stop
        .try_receipt()
        .expect("it is answered with the end of its ladder");
    assert_eq!(receipt.items().len(), 1, "{receipt:?}");
    assert_eq!(root.running().len(), 0);
}

#[test]
fn dropped_account_frees_its_tree() {
    let runtime = runtime();
    let (root, stop, clock) = stop_under_way(&runtime, |part| {
        drop(part.account(Extent::Turn, Vec::new()));
    });
    let receipt = runtime.block_on(stop.receipt());
    assert_eq!(receipt.items().len(), 1, "{receipt:?}");
    drop((root, stop, receipt, runtime));
    assert_eq!(Arc::strong_count(&clock), 1);
}

#[test]
fn stop_after_the_end_of_its_runtime_is_answered_at_once() {
    let runtime = runtime();
    let root = runtime.block_on(async { Scope::root("test", RootOptions::single_runtime()) });
    // Without the shutdown of the runtime, the stop would wait for this engine.
    let engine = root.attach_engine();
    drop(runtime);
    let stop = root.stop(by_user());
    let receipt = stop
        .try_receipt()
        .expect("nobody is there to climb its ladder");
    assert!(!receipt.cancel_observed(), "{receipt:?}");
    drop(engine);
}

#[test]
fn wide_stop_wakes_work_of_other_runtimes() {
    const PARTS: usize = 500;
    let (control, work) = (runtime(), runtime());
    let options = control.block_on(async { RootOptions::single_runtime() });
    let options = options.work(work.handle().clone().into());
    let root = Scope::root("test", options);
    for _ in 0..PARTS {
        let part = root.child("part", ScopeOptions::default());
        let part = part.expect("nothing is stopped yet");
        let waits = part.spawn(future("waits"), |cx| async move {
            drop(cx.stopped_at("idle").await);
        });
        drop(waits.expect("nothing is stopped yet"));
    }
    // The runtime polls its main future from time to time, even if it has not polled all other futures yet.
    let run_all = || {
        work.block_on(async {
            for _ in 0..PARTS {
                tokio::task::yield_now().await;
            }
        });
    };
    run_all();
    assert_eq!(root.running().len(), PARTS);
    drop(control);
    let stop = root.stop(by_user());
    assert!(stop.try_receipt().is_some(), "nobody climbs its ladder");
    run_all();
    assert_eq!(root.running().len(), 0);
}

#[test]
fn end_of_the_runtime_during_a_stop_frees_the_whole_tree() {
    let runtime = runtime();
    let (root, stop, clock) = stop_under_way(&runtime, |_| ());
    drop((root, stop));
    drop(runtime);
    assert_eq!(Arc::strong_count(&clock), 1);
}

/// The limit of descriptors counts for the whole process, so it is restored at once.
#[test]
fn root_without_a_thread_is_an_error() {
    let limit = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..limit
    };
    setrlimit(Resource::Nofile, none).expect("a lower limit");
    let root = Scope::try_root("test", RootOptions::for_any_runtime());
    setrlimit(Resource::Nofile, limit).expect("the former limit");
    let error = root.expect_err("no descriptor for an event loop");
    assert!(std::error::Error::source(&error).is_some(), "{error}");
    Scope::try_root("test", RootOptions::for_any_runtime()).expect("descriptors again");
}
