//! Work is registered and scopes are created during a stop. Each piece of work is either refused or in the receipt of
//! the stop. If the work is in the receipt, the receipt waits for the end of this work.

use std::sync::Arc;

use crate::sync::block_on;

use super::{
    by_user, child, every_interleaving, interruptions, joined, options, receipt_of, register, root,
    spawn, work,
};
use crate::registration::Registration;
use crate::scope::Scope;
use crate::sync::{AtomicBool, Ordering};
use crate::work::Ending;

/// If the barrier is open, registers work in `scope` and ends the work after the stop. Returns true if the work ran.
fn works_until_stopped(scope: &Scope, ended: &AtomicBool) -> bool {
    let Ok(registration) = scope.register(work()) else {
        return false;
    };
    block_on(scope.stopped());
    registration.acknowledge("idle");
    ended.store(true, Ordering::Relaxed);
    registration.finish(Ending::Returned);
    true
}

/// Checks the guarantees of every stop for one piece of work that may start at the same time.
fn assert_refused_or_in_the_receipt(
    root: &Scope,
    start: impl FnOnce(&AtomicBool) -> bool + 'static,
) {
    let ended = Arc::new(AtomicBool::new(false));
    let worker = {
        let ended = Arc::clone(&ended);
        spawn(move || start(&ended))
    };
    let receipt = receipt_of(root.stop(by_user()));
    let had_ended = ended.load(Ordering::Relaxed);
    let started = joined(worker);
    assert_eq!(
        receipt.items().len(),
        usize::from(started),
        "lost, or never ran"
    );
    assert_eq!(had_ended, started, "the receipt did not wait");
    assert!(receipt.quiet());
}

/// Checks only the start of the work, in every interleaving. The work ends after both threads have finished.
fn assert_refused_or_listed(root: &Scope, start: impl FnOnce() -> Option<Registration> + 'static) {
    let thread = spawn(start);
    let stop = root.stop(by_user());
    let started = joined(thread);
    let listed = stop.account_now().items().len();
    assert_eq!(listed, usize::from(started.is_some()), "lost, or never ran");
    assert_eq!(stop.try_receipt().is_none(), started.is_some(), "premature");
    drop(started);
    assert!(receipt_of(stop).quiet());
}

#[test]
fn a_start_is_refused_or_listed() {
    every_interleaving(|| {
        let root = root();
        let scope = root.clone();
        assert_refused_or_listed(&root, move || scope.register(work()).ok());
    });
}

#[test]
fn a_start_below_is_refused_or_listed() {
    every_interleaving(|| {
        let root = root();
        let scope = child(&root);
        assert_refused_or_listed(&root, move || scope.register(work()).ok());
    });
}

#[test]
fn a_start_in_a_child_made_meanwhile_is_refused_or_listed() {
    every_interleaving(|| {
        let root = root();
        let middle = child(&root);
        assert_refused_or_listed(&root, move || {
            let late = middle.child("late", options()).ok()?;
            late.register(work()).ok()
        });
    });
}

#[test]
fn a_start_below_a_closed_scope_is_refused_or_listed() {
    every_interleaving(|| {
        let root = root();
        let below = child(&root);
        root.close();
        assert_refused_or_listed(&root, move || below.register(work()).ok());
    });
}

#[test]
fn work_is_refused_or_in_the_receipt() {
    interruptions(3, || {
        let root = root();
        let scope = root.clone();
        assert_refused_or_in_the_receipt(&root, move |ended| works_until_stopped(&scope, ended));
    });
}

#[test]
fn work_of_a_later_child_is_refused_or_in_the_receipt() {
    interruptions(3, || {
        let root = root();
        let scope = child(&root);
        assert_refused_or_in_the_receipt(&root, move |ended| works_until_stopped(&scope, ended));
    });
}

#[test]
fn a_child_made_while_a_stop_walks_is_not_lost() {
    interruptions(3, || {
        let root = root();
        let middle = child(&root);
        assert_refused_or_in_the_receipt(&root, move |ended| {
            middle
                .child("late", options())
                .is_ok_and(|late| works_until_stopped(&late, ended))
        });
    });
}

#[test]
fn a_child_that_goes_away_while_a_stop_walks_changes_nothing() {
    interruptions(2, || {
        let root = root();
        let (going, staying) = (child(&root), child(&root));
        let work = register(&staying);
        let drops = spawn(move || {
            drop(going);
            work.finish(Ending::Returned);
        });
        let receipt = receipt_of(root.stop(by_user()));
        joined(drops);
        assert!(receipt.quiet() && receipt.items().len() <= 1);
    });
}

#[test]
fn work_that_ends_during_the_walk_has_ended_at_the_receipt() {
    interruptions(2, || {
        let root = root();
        let ended = Arc::new(AtomicBool::new(false));
        let work = register(&root);
        let worker = {
            let ended = Arc::clone(&ended);
            spawn(move || {
                ended.store(true, Ordering::Relaxed);
                work.finish(Ending::Returned);
            })
        };
        let receipt = receipt_of(root.stop(by_user()));
        assert!(receipt.quiet());
        if let [item] = receipt.items() {
            assert_eq!(item.state.as_str(), "finished");
        }
        assert!(
            ended.load(Ordering::Relaxed) && root.is_quiet(),
            "the receipt did not wait"
        );
        joined(worker);
    });
}

#[test]
fn a_stop_waits_for_the_engine_that_acknowledges() {
    interruptions(2, || {
        let root = root();
        let heard = Arc::new(AtomicBool::new(false));
        let engine = {
            let (engine, scope) = (root.attach_engine(), root.clone());
            let heard = Arc::clone(&heard);
            spawn(move || {
                block_on(scope.stopped());
                heard.store(true, Ordering::Relaxed);
                engine.acknowledge();
            })
        };
        let receipt = receipt_of(root.stop(by_user()));
        assert!(heard.load(Ordering::Relaxed) && receipt.cancel_observed());
        joined(engine);
    });
}
