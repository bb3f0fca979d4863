//! The models, one file for each rule, and their shared functions.

mod account;
mod barrier;
mod commit;
mod force;
mod moving;
mod moving_scope;
mod quiet;
mod second_stop;
mod siblings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use allstop_core::receipt::{ItemKind, ReceiptItem};
use allstop_core::{Cause, CauseKind, Extent, Receipt, StopId, Timestamp};
use loom::thread::JoinHandle;

use crate::child_scope::ScopeOptions;
use crate::env::RootOptions;
use crate::group::Placement;
use crate::registration::Registration;
use crate::scope::Scope;
use crate::stop::{Stop, StopRequest};
use crate::sync::{ContainmentChoice, Handle};
use crate::work::WorkSpec;

/// Longer than any model runs, measured by the clock of the machine.
const NEVER: Duration = Duration::from_hours(1);

/// Tries every interleaving.
fn every_interleaving(model: impl Fn() + Send + Sync + 'static) {
    explore(None, model);
}

/// Tries every interleaving in which threads are preempted at most this many times. Used for models that have too many
/// interleavings to try them all.
fn interruptions(most: usize, model: impl Fn() + Send + Sync + 'static) {
    explore(Some(most), model);
}

/// True if the scopes of the model share the groups of their parents. `HAS_CHILDREN` is set when the model has created
/// such scopes.
static SHARED: AtomicBool = AtomicBool::new(false);
static HAS_CHILDREN: AtomicBool = AtomicBool::new(false);

#[expect(clippy::print_stdout, reason = "how much was tried is worth knowing")]
fn explore(preemption_bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemption_bound;
    let model = Arc::new(model);
    // The rules must hold if each scope has its own group, and also if all scopes share one group.
    for shared in [false, true] {
        SHARED.store(shared, Ordering::Relaxed);
        let tried = Arc::new(AtomicUsize::new(0));
        let (counted, model) = (Arc::clone(&tried), Arc::clone(&model));
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            model();
        });
        let tried = tried.load(Ordering::Relaxed);
        println!("{tried} interleavings, shared: {shared}");
        assert!(shared || tried > 1, "nothing ran side by side");
        if !HAS_CHILDREN.load(Ordering::Relaxed) {
            break;
        }
    }
}

fn root() -> Scope {
    let stops = AtomicUsize::new(0);
    let options = RootOptions {
        control: Handle.into(),
        work: Handle.into(),
        grace: NEVER,
        containment: ContainmentChoice::GroupAndMarker,
        now: Arc::new(|| Timestamp::from(std::time::UNIX_EPOCH)),
        new_stop_id: Arc::new(move || {
            StopId::new(format!("stop-{}", stops.fetch_add(1, Ordering::Relaxed)))
        }),
    };
    Scope::root("root", options)
}

fn child(parent: &Scope) -> Scope {
    parent
        .child("child", options())
        .expect("nothing is stopped yet")
}

/// Options of a scope in this pass of the model.
fn options() -> ScopeOptions {
    HAS_CHILDREN.store(true, Ordering::Relaxed);
    ScopeOptions {
        placement: if SHARED.load(Ordering::Relaxed) {
            Placement::Shared
        } else {
            Placement::Fixed
        },
        ..ScopeOptions::default()
    }
}

fn by(kind: CauseKind) -> StopRequest {
    StopRequest::new(Extent::Process, Cause::new(kind))
}

fn by_user() -> StopRequest {
    by(CauseKind::User)
}

fn work() -> WorkSpec {
    WorkSpec::new(ItemKind::Future, "work")
}

fn register(scope: &Scope) -> Registration {
    scope.register(work()).expect("nothing is stopped yet")
}

fn spawn<T: 'static>(thread: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    loom::thread::spawn(thread)
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("a panic ends the model")
}

fn receipt_of(stop: Stop) -> Arc<Receipt> {
    crate::sync::block_on(async move { stop.receipt().await })
}

fn states(items: &[ReceiptItem]) -> Vec<&str> {
    items.iter().map(|item| item.state.as_str()).collect()
}
