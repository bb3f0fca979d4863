//! One stop of several scopes, with one id, one grace and one receipt (result).

use allstop_core::receipt::{ItemState, NothingToStop};
use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_scope::{Scope, ScopeOptions, StopRequest};

use crate::{begun, by_user, future, root};

/// Two scopes with a common parent. A waiting future runs in each scope.
async fn two() -> (Scope, [Scope; 2]) {
    let root = root();
    let both = ["turn", "background"].map(|name| {
        let scope = root
            .child(name, ScopeOptions::default())
            .expect("nothing is stopped");
        let waits = scope.spawn(future(name), |cx| async move {
            drop(cx.stopped_at("idle").await);
        });
        drop(waits.expect("nothing is stopped"));
        scope
    });
    begun().await;
    begun().await;
    (root, both)
}

fn of_both() -> StopRequest {
    let cause = Cause::new(CauseKind::User);
    StopRequest::new(Extent::TurnAndBackground, cause).target("session/s")
}

fn names(receipt: &Receipt) -> Vec<&str> {
    receipt.items().iter().map(|item| &*item.name).collect()
}

#[tokio::test(start_paused = true)]
async fn several_scopes_have_one_stop_and_others_run_on() {
    let (root, both) = two().await;
    let beside = root.child("beside", ScopeOptions::default()).unwrap();
    let accepted = root.accept_stop_of(&both, of_both());
    assert!(both.iter().all(|scope| scope.check().is_err()), "at once");
    assert!(both.iter().all(Scope::is_stopped));
    let stop = accepted.begin();
    let of_turn = both[0].account(Extent::Turn, Vec::new()).unwrap();
    let receipt = stop.receipt().await;
    assert_eq!(&*receipt.request().target, "session/s");
    assert_eq!(receipt.request().extent, Extent::TurnAndBackground);
    assert!(receipt.quiet() && receipt.cancel_observed());
    assert_eq!(names(&receipt), ["turn", "background"]);
    // The turn gets a separate receipt for its part of this stop.
    let part = of_turn.receipt().await;
    assert_eq!(part.stop_id(), receipt.stop_id());
    assert_eq!(part.request().extent, Extent::Turn);
    assert_eq!(names(&part), ["turn"]);
    assert!(beside.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_same_stop_again_joins_and_a_wider_one_does_not() {
    let (root, both) = two().await;
    let narrow = both[0].stop(StopRequest::new(
        Extent::Turn,
        Cause::new(CauseKind::Deadline),
    ));
    let wide = root.accept_stop_of(&both, of_both()).begin();
    assert_ne!(narrow.request().stop_id, wide.request().stop_id);
    let again = root.accept_stop_of(&both, of_both()).begin();
    assert_eq!(again.request().stop_id, wide.request().stop_id);
    // A later stop does not change the first cause.
    assert_eq!(both[0].cause().unwrap().kind, CauseKind::Deadline);
    assert_eq!(both[1].cause().unwrap().kind, CauseKind::User);
    let (wide, again) = (wide.receipt().await, again.receipt().await);
    assert_eq!(names(&wide), ["turn", "background"], "{wide:?}");
    assert_eq!(wide, again);
    let narrow = narrow.receipt().await;
    assert_eq!(names(&narrow), ["turn"]);
}

#[tokio::test(start_paused = true)]
async fn scopes_that_have_ended_are_left_out() {
    let (root, both) = two().await;
    let first = both[0].stop(by_user()).receipt().await;
    let rest = root.accept_stop_of(&both, of_both()).begin();
    let rest = rest.receipt().await;
    assert_eq!(names(&rest), ["background"]);
    let none = root.accept_stop_of(&both, of_both()).begin();
    let none = none.receipt().await;
    assert_eq!(none.outcome(), Some(NothingToStop::AlreadyEnded));
    assert_eq!(none.stop_id(), first.stop_id());
    let empty = root.accept_stop_of(&[], of_both()).begin();
    let empty = empty.receipt().await;
    assert_eq!(empty.outcome(), Some(NothingToStop::AlreadyEnded));
}

/// The stop is accepted, which closes the barriers, and is then dropped without a call of `begin`. The drop still asks
/// the work.
#[tokio::test(start_paused = true)]
async fn stop_that_is_accepted_and_dropped_is_carried_out() {
    let (root, both) = two().await;
    drop(root.accept_stop_of(&both, of_both()));
    let joined = root.accept_stop_of(&both, of_both()).begin();
    let receipt = joined.receipt().await;
    let mut states = receipt.items().iter().map(|item| &item.state);
    assert!(states.all(|state| matches!(state, ItemState::Stopped { .. })));
    assert!(receipt.quiet() && root.is_quiet());
}
