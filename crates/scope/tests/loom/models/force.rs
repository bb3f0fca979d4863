//! Forced ending of work that is still being created: the work is not lost.

use std::sync::Arc;
use std::time::Duration;

use super::{by_user, every_interleaving, joined, receipt_of, root, spawn, work};
use crate::registration::Registration;
use crate::scope::Scope;
use crate::sync::{AbortHandle, Mutex, ProcessHandle};
use crate::work::{Ending, Force};

/// A task that has its own registration, like a spawned task. Dropping the task ends the work.
fn task(registration: Registration) -> AbortHandle {
    let future = Mutex::new(Some(registration));
    AbortHandle::new(move || drop(future.lock().take()))
}

#[test]
fn immediate_force_drops_a_future_during_its_creation() {
    every_interleaving(|| {
        let root = root();
        let maker = {
            let root = root.clone();
            spawn(move || {
                let Ok(registration) = root.node().register(work(), Force::AbortSoon) else {
                    return;
                };
                let (node, key) = (registration.node().clone(), registration.key());
                let task = task(registration);
                node.set_force(key, Force::Abort(task));
            })
        };
        let stop = root.stop(by_user().grace(Duration::ZERO));
        joined(maker);
        let receipt = receipt_of(stop);
        assert!(receipt.items().len() <= 1);
        assert!(root.is_quiet(), "force did not reach it");
    });
}

/// If the barrier is open, starts a process in the same order as a scope: first registers the process, then launches
/// it.
fn launch(scope: &Scope) -> Option<(ProcessHandle, Registration)> {
    let registration = scope.node().register(work(), Force::AbortSoon).ok()?;
    let process = ProcessHandle::new();
    let force = Force::Process(process.clone());
    let meanwhile = scope.node().set_force(registration.key(), force);
    if meanwhile.stopped {
        process.ask();
    }
    if meanwhile.forced {
        process.force();
    }
    Some((process, registration))
}

#[test]
fn running_and_launching_processes_are_asked_and_killed() {
    every_interleaving(|| {
        let root = root();
        let (beside, registration) = launch(&root).expect("nothing is stopped yet");
        let maker = {
            let root = root.clone();
            spawn(move || launch(&root))
        };
        let stop = root.stop(by_user().grace(Duration::ZERO));
        let late = joined(maker);
        let receipt = receipt_of(stop);
        assert_eq!(receipt.items().len(), 1 + usize::from(late.is_some()));
        for process in [Some(&beside), late.as_ref().map(|(process, _)| process)] {
            assert!(process.is_none_or(|process| process.was_asked() && process.was_forced()));
        }
        registration.finish(Ending::Returned);
    });
}

#[test]
fn a_remote_is_asked_or_never_called() {
    every_interleaving(|| {
        let root = root();
        let asked = Arc::new(crate::sync::AtomicBool::new(false));
        let caller = {
            let (root, asked) = (root.clone(), Arc::clone(&asked));
            spawn(move || {
                let ask = move || asked.store(true, crate::sync::Ordering::Release);
                root.register_remote(work(), ask).ok()
            })
        };
        drop(root.stop(by_user().grace(Duration::ZERO)));
        let call = joined(caller);
        assert_eq!(asked.load(crate::sync::Ordering::Acquire), call.is_some());
    });
}

#[test]
fn values_of_a_remote_are_dropped_outside_the_lock() {
    every_interleaving(|| {
        let root = root();
        let below = super::child(&root);
        let holds = below.clone();
        let call = root.register_remote(work(), move || assert!(holds.is_stopped()));
        let other = spawn(move || drop(below));
        call.expect("nothing is stopped yet")
            .finish(Ending::Returned);
        joined(other);
        assert!(root.is_quiet());
    });
}
