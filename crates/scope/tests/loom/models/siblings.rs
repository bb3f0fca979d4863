//! Two sibling scopes, each with its own group or with one group for both. One scope, the other scope and their parent
//! are stopped.

use super::{by_user, child, interruptions, joined, receipt_of, register, root, spawn, states};
use crate::scope::Scope;
use crate::sync::block_on;
use crate::work::Ending;

/// Ends the work of this scope after the scope was stopped.
fn ends_when_stopped(scope: &Scope) -> impl FnOnce() + 'static {
    let (scope, work) = (scope.clone(), register(scope));
    move || {
        block_on(scope.stopped());
        work.finish(Ending::Returned);
    }
}

#[test]
fn each_sibling_observes_its_own_stop() {
    interruptions(2, || {
        let root = root();
        let (one, other) = (child(&root), child(&root));
        let waiting = spawn(ends_when_stopped(&one));
        let first = spawn(move || receipt_of(other.stop(by_user())));
        let receipt = receipt_of(one.stop(by_user()));
        assert_eq!(states(receipt.items()), ["finished"]);
        assert!(joined(first).items().is_empty());
        joined(waiting);
    });
}

#[test]
fn stop_of_one_and_stop_of_all_each_list_their_work() {
    interruptions(2, || {
        let root = root();
        let (one, other) = (child(&root), child(&root));
        let (work, of_other) = (register(&one), register(&other));
        let narrow = {
            let one = one.clone();
            spawn(move || {
                let stop = one.stop(by_user());
                work.finish(Ending::Returned);
                receipt_of(stop)
            })
        };
        let wide = root.stop(by_user());
        of_other.finish(Ending::Returned);
        let wide = receipt_of(wide);
        let narrow = joined(narrow);
        assert!(wide.quiet() && narrow.quiet());
        // The wide stop lists the work of the narrow stop, unless that work had already ended before the wide stop. If
        // the narrow stop joined the wide stop, both receipts are identical.
        assert!((1..=2).contains(&wide.items().len()), "{wide:?}");
        assert!(!narrow.items().is_empty(), "{narrow:?}");
    });
}
