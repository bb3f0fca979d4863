//! A scope with work is moved below another scope while either parent is stopped.

use super::{by_user, child, interruptions, joined, receipt_of, register, root, spawn};
use crate::child_scope::ScopeOptions;
use crate::group::Placement;
use crate::scope::Scope;
use crate::work::Ending;

/// A movable scope below `parent`.
fn movable(parent: &Scope) -> Scope {
    let options = ScopeOptions {
        placement: Placement::Movable,
        ..ScopeOptions::default()
    };
    parent
        .child("movable", options)
        .expect("nothing is stopped")
}

#[test]
fn moved_work_does_not_escape_a_stop_of_the_old_scope() {
    interruptions(2, || {
        let root = root();
        let (turn, background) = (child(&root), child(&root));
        let agent = movable(&turn);
        let work = register(&agent);
        let (moving, to) = (agent.clone(), background.clone());
        let thread = spawn(move || {
            let moved = moving.move_below(&to).is_ok();
            if !moved {
                crate::sync::block_on(moving.stopped());
            }
            work.finish(Ending::Returned);
            moved
        });
        let receipt = receipt_of(turn.stop(by_user()));
        let moved = joined(thread);
        assert!(receipt.quiet());
        assert_eq!(receipt.items().len(), usize::from(!moved), "{receipt:?}");
        // If the stop covers the scope, the scope observes the stop. Otherwise the scope does not observe the stop.
        assert_eq!(agent.is_stopped(), !moved);
        assert_eq!(agent.cause().is_some(), !moved);
    });
}

#[test]
fn after_the_move_a_stop_of_the_new_scope_covers_it() {
    interruptions(2, || {
        let root = root();
        let (turn, background) = (child(&root), child(&root));
        let agent = movable(&turn);
        let work = register(&agent);
        let (moving, to) = (agent.clone(), background.clone());
        let thread = spawn(move || {
            let moved = moving.move_below(&to).is_ok();
            if moved {
                crate::sync::block_on(moving.stopped());
            }
            work.finish(Ending::Returned);
            moved
        });
        let receipt = receipt_of(background.stop(by_user()));
        let moved = joined(thread);
        assert!(receipt.quiet());
        assert_eq!(receipt.items().len(), usize::from(moved), "{receipt:?}");
        assert_eq!(agent.is_stopped(), moved);
    });
}

#[test]
fn a_stop_of_both_covers_it_once() {
    interruptions(2, || {
        let root = root();
        let (turn, background) = (child(&root), child(&root));
        let agent = movable(&turn);
        let work = register(&agent);
        let thread = spawn(move || {
            let _either_way = agent.move_below(&background);
            crate::sync::block_on(agent.stopped());
            work.finish(Ending::Returned);
        });
        let receipt = receipt_of(root.stop(by_user()));
        joined(thread);
        assert!(receipt.quiet());
        assert_eq!(receipt.items().len(), 1, "{receipt:?}");
    });
}
