//! Commit and stop of a turn at the same time: exactly one of them wins, and all callers receive the same verdict, with
//! the first cause.

use std::sync::Arc;

use allstop_core::receipt::NothingToStop;
use allstop_core::{Cause, CauseKind};

use super::{
    by, by_user, every_interleaving, interruptions, joined, options, receipt_of, root, spawn,
};
use crate::child_scope::ScopeOptions;
use crate::scope::Scope;
use crate::sync::{CommitDecision, CommitVerdict};

fn turn(parent: &Scope, decision: &Arc<CommitDecision>) -> Scope {
    let options = ScopeOptions {
        decision: Some(Arc::clone(decision)),
        ..options()
    };
    parent
        .child("turn", options)
        .expect("nothing is stopped yet")
}

#[test]
fn one_of_a_commit_and_two_stops_wins() {
    every_interleaving(|| {
        let decision = Arc::new(CommitDecision::new());
        let kinds = [CauseKind::User, CauseKind::Deadline];
        let stops = kinds.map(|kind| {
            let decision = Arc::clone(&decision);
            spawn(move || {
                let won = decision.stop(Cause::new(kind));
                (won, decision.verdict().cloned().expect("it is decided now"))
            })
        });
        let committed = decision.commit().map(drop);
        let [user, deadline] = stops.map(joined);
        let winners = [committed.is_ok(), user.0, deadline.0];
        assert_eq!(winners.iter().filter(|won| **won).count(), 1);
        let verdict = decision.verdict().cloned().expect("it is decided");
        let winner = if user.0 {
            CommitVerdict::Stop(Cause::new(CauseKind::User))
        } else if deadline.0 {
            CommitVerdict::Stop(Cause::new(CauseKind::Deadline))
        } else {
            CommitVerdict::Commit
        };
        assert_eq!(verdict, winner);
        assert_eq!([&user.1, &deadline.1], [&verdict; 2]);
        if let Err(heard) = committed {
            assert_eq!(heard, verdict);
        }
    });
}

#[test]
fn stop_reports_already_ended_only_if_the_commit_won() {
    every_interleaving(|| {
        let root = root();
        let decision = Arc::new(CommitDecision::new());
        let turn = turn(&root, &decision);
        let committer = {
            let decision = Arc::clone(&decision);
            spawn(move || decision.commit().map(drop))
        };
        let receipt = receipt_of(turn.stop(by_user()));
        let ended = receipt.outcome() == Some(NothingToStop::AlreadyEnded);
        match joined(committer) {
            Ok(()) => assert!(ended && turn.cause().is_none()),
            Err(verdict) => {
                let cause = turn.cause().expect("the stop covers it");
                assert!(!ended && verdict == CommitVerdict::Stop(cause));
            }
        }
    });
}

#[test]
fn a_stop_after_the_commit_waits_for_the_engine_that_writes_it() {
    interruptions(2, || {
        let root = root();
        let decision = Arc::new(CommitDecision::new());
        let turn = turn(&root, &decision);
        let engine = turn.attach_engine();
        let committed = decision.commit().map(drop);
        assert!(committed.is_ok());
        let writer = spawn(move || drop(engine));
        let receipt = receipt_of(turn.stop(by_user()));
        assert_eq!(receipt.outcome(), Some(NothingToStop::AlreadyEnded));
        assert!(receipt.quiet() && receipt.items().is_empty());
        assert!(turn.cause().is_none(), "it covers nothing");
        joined(writer);
    });
}

#[test]
fn barrier_and_decision_keep_the_first_cause() {
    every_interleaving(|| {
        let root = root();
        let decision = Arc::new(CommitDecision::new());
        let turn = turn(&root, &decision);
        let wide = {
            let root = root.clone();
            spawn(move || drop(root.stop(by(CauseKind::Shutdown))))
        };
        drop(turn.stop(by_user()));
        let heard = turn.cause().expect("a stop covers it");
        joined(wide);
        assert_eq!(
            turn.cause().as_ref(),
            Some(&heard),
            "a cause was overwritten"
        );
        assert_eq!(decision.stopped_by(), Some(&heard));
        assert_eq!(
            root.cause().map(|cause| cause.kind),
            Some(CauseKind::Shutdown)
        );
    });
}
