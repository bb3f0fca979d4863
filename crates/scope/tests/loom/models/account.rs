//! Work ends while its stop creates the receipt (the list of the work): an item is neither lost nor listed twice.

use std::sync::Arc;

use crate::sync::block_on;
use allstop_core::Extent;

use super::{
    by_user, child, every_interleaving, interruptions, joined, receipt_of, register, root, spawn,
    states,
};
use crate::work::Ending;

#[test]
fn work_that_ends_during_the_account_is_in_it() {
    interruptions(3, || {
        let root = root();
        let work = register(&root);
        let stop = root.stop(by_user().grace(std::time::Duration::ZERO));
        let worker = spawn(move || work.finish(Ending::Returned));
        let receipt = receipt_of(stop);
        assert_eq!(receipt.items().len(), 1);
        assert_eq!(receipt.quiet(), states(receipt.items()) == ["finished"]);
        joined(worker);
    });
}

#[test]
fn immediate_account_is_complete_during_the_answer() {
    interruptions(3, || {
        let root = root();
        let work = register(&root);
        let stop = root.stop(by_user());
        let worker = spawn(move || work.finish(Ending::Returned));
        assert_eq!(stop.account_now().items().len(), 1);
        joined(worker);
        assert_eq!(receipt_of(stop).items().len(), 1);
    });
}

#[test]
fn immediate_account_is_complete_during_the_walk() {
    every_interleaving(|| {
        let root = root();
        let below = child(&root);
        let work = register(&below);
        let first = {
            let root = root.clone();
            spawn(move || root.stop(by_user()))
        };
        assert_eq!(root.stop(by_user()).account_now().items().len(), 1);
        drop(joined(first));
        work.finish(Ending::Returned);
    });
}

#[test]
fn account_of_a_part_is_shared_by_all_waiters() {
    interruptions(2, || {
        let root = root();
        let part = child(&root);
        let work = register(&part);
        let wide = root.stop(by_user());
        let account = part.account(Extent::Turn, Vec::new());
        let account = Arc::new(account.expect("a stop covers it"));
        let other = {
            let account = Arc::clone(&account);
            spawn(move || block_on(account.receipt()))
        };
        work.finish(Ending::Returned);
        let (one, two) = (block_on(account.receipt()), joined(other));
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(states(one.items()), ["finished"]);
        assert_eq!(states(receipt_of(wide).items()), ["finished"]);
    });
}

#[test]
fn account_of_a_part_waits_for_the_work_of_the_part() {
    interruptions(2, || {
        let root = root();
        let part = child(&root);
        let work = register(&part);
        let engine = spawn(move || {
            block_on(part.stopped());
            let account = part.account(Extent::Turn, Vec::new());
            let worker = work;
            worker.finish(Ending::Returned);
            block_on(account.expect("a stop covers it").receipt())
        });
        let wide = receipt_of(root.stop(by_user()));
        let part = joined(engine);
        assert_eq!(states(part.items()), ["finished"]);
        assert_eq!(states(wide.items()), ["finished"]);
        assert_eq!(part.stop_id(), wide.stop_id());
    });
}
