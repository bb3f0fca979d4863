//! Work moves to another scope while either scope is stopped: exactly one of the two scopes covers the work.

use super::{by_user, child, interruptions, joined, receipt_of, register, root, spawn, work};
use crate::registration::Registration;
use crate::scope::Scope;
use crate::work::{Ending, Force};

/// Moves the work if that is allowed, and then ends it. Returns true if the work was moved.
fn move_and_end(work_of_turn: Registration, to: &Scope) -> bool {
    match work_of_turn.move_to(to.node(), work(), Force::Inline) {
        Ok(moved) => {
            moved.finish(Ending::Returned);
            true
        }
        Err(stayed) => {
            stayed.0.finish(Ending::Returned);
            false
        }
    }
}

#[test]
fn moved_work_does_not_escape_a_stop_of_the_old_scope() {
    interruptions(2, || {
        let root = root();
        let (turn, background) = (child(&root), child(&root));
        let registration = register(&turn);
        let thread = spawn(move || move_and_end(registration, &background));
        let receipt = receipt_of(turn.stop(by_user()));
        let moved = joined(thread);
        // If the work was moved before the stop, the stop does not list the work. If the work was not moved because of
        // the stop, the stop lists the work. Both rules hold for any order in which the stop and the work end.
        assert!(receipt.quiet());
        assert_eq!(receipt.items().len(), usize::from(!moved));
    });
}

#[test]
fn a_stop_of_the_new_scope_leaves_it_there_or_covers_it() {
    interruptions(3, || {
        let root = root();
        let (turn, background) = (child(&root), child(&root));
        let registration = register(&turn);
        let (from, to) = (turn.clone(), background.clone());
        let thread = spawn(move || {
            let moved = registration.move_to(to.node(), work(), Force::Inline);
            let (kept, moved) = match moved {
                Ok(moved) => (moved, true),
                Err(stayed) => (stayed.0, false),
            };
            assert_eq!(from.node().live(), usize::from(!moved));
            assert_eq!(to.node().live(), usize::from(moved));
            kept.finish(Ending::Returned);
            moved
        });
        let receipt = receipt_of(background.stop(by_user()));
        let moved = joined(thread);
        assert!(receipt.quiet() && receipt.items().len() <= usize::from(moved));
    });
}

#[test]
fn a_stop_of_both_lists_it_once() {
    interruptions(2, || {
        let root = root();
        let (turn, background) = (child(&root), child(&root));
        let registration = register(&turn);
        let to = background.clone();
        let thread = spawn(move || {
            let kept = match registration.move_to(to.node(), work(), Force::Inline) {
                Ok(moved) => moved,
                Err(stayed) => stayed.0,
            };
            crate::sync::block_on(to.stopped());
            kept.finish(Ending::Returned);
        });
        let receipt = receipt_of(root.stop(by_user()));
        joined(thread);
        assert!(receipt.quiet());
        assert_eq!(receipt.items().len(), 1, "{receipt:?}");
    });
}
