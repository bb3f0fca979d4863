//! A second stop while the first stop ends. The second stop gets the receipt (the result) of the first stop, or
//! `already_ended`, and never hangs.

use std::sync::Arc;

use allstop_core::Receipt;
use allstop_core::receipt::NothingToStop;

use super::{
    by_user, child, every_interleaving, interruptions, joined, receipt_of, register, root, spawn,
    states, work,
};
use crate::scope::Scope;
use crate::work::Ending;

fn is_same_or_already_ended(first: &Arc<Receipt>, second: &Arc<Receipt>) -> bool {
    Arc::ptr_eq(first, second)
        || second.outcome() == Some(NothingToStop::AlreadyEnded)
            && second.stop_id() == first.stop_id()
            && second.items().is_empty()
}

#[test]
fn two_stops_of_one_scope_give_one_receipt() {
    interruptions(2, || {
        let root = root();
        let work = register(&root);
        let other = {
            let root = root.clone();
            spawn(move || receipt_of(root.stop(by_user())))
        };
        let stop = root.stop(by_user());
        work.finish(Ending::Returned);
        let (one, two) = (receipt_of(stop), joined(other));
        assert!(is_same_or_already_ended(&one, &two) || is_same_or_already_ended(&two, &one));
        let listed = one.items().len() + two.items().len();
        assert!(listed >= 1, "the work ran until a stop had been accepted");
    });
}

#[test]
fn stop_at_the_end_of_the_first_joins_or_finds_nothing() {
    interruptions(3, || {
        let root = root();
        let work = register(&root);
        let first = root.stop(by_user());
        let worker = spawn(move || work.finish(Ending::Returned));
        let second = receipt_of(root.stop(by_user()));
        let first = receipt_of(first);
        joined(worker);
        assert!(is_same_or_already_ended(&first, &second));
        assert_eq!(states(first.items()), ["finished"]);
    });
}

#[test]
fn stop_after_the_receipt_reports_already_ended() {
    every_interleaving(|| {
        let root = root();
        let work = register(&root);
        let stop = root.stop(by_user());
        let again = {
            let (root, stop) = (root.clone(), stop.clone());
            spawn(move || {
                drop(receipt_of(stop));
                receipt_of(root.stop(by_user()))
            })
        };
        work.finish(Ending::Returned);
        let again = joined(again);
        assert_eq!(again.outcome(), Some(NothingToStop::AlreadyEnded));
        assert_eq!(again.stop_id(), receipt_of(stop).stop_id());
    });
}

#[test]
fn joined_stop_finds_the_barrier_closed() {
    every_interleaving(|| {
        let root = root();
        let below = child(&root);
        let stop_and_try = |root: Scope, below: Scope| {
            let stop = root.stop(by_user());
            assert!(below.register(work()).is_err(), "started behind a stop");
            receipt_of(stop)
        };
        let other = {
            let (root, below) = (root.clone(), below.clone());
            spawn(move || stop_and_try(root, below))
        };
        let one = stop_and_try(root, below);
        let two = joined(other);
        assert!(is_same_or_already_ended(&one, &two) || is_same_or_already_ended(&two, &one));
    });
}

#[test]
fn narrow_and_wide_stop_each_list_their_work() {
    interruptions(1, || {
        let root = root();
        let part = child(&root);
        let work = register(&part);
        let wide = {
            let root = root.clone();
            spawn(move || root.stop(by_user()))
        };
        let narrow = part.stop(by_user());
        let wide = joined(wide);
        work.finish(Ending::Returned);
        for receipt in [receipt_of(narrow), receipt_of(wide)] {
            assert_eq!(states(receipt.items()), ["finished"]);
        }
    });
}
