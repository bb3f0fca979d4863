//! One turn with random actions and one of the possible endings.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::decision::CommitDecision;
use allstop_core::message::Arguments;
use allstop_core::receipt::{
    EndMethod, EndProof, Evidence, ItemKind, ItemState, Receipt, ReceiptItem, StopFindings,
    StopInfo,
};
use allstop_core::record::{CallOutcome, SessionRecord, StartedCallKind};
use allstop_core::turn::{Draft, SessionState, StopPolicy, TurnStop};
use allstop_core::{Cause, CauseKind, Extent};
use proptest::prelude::*;

use super::tries::{Books, Try, attempt, causes};
use crate::driver::*;

/// Ending of a turn.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Commit,
    /// The record of the commit could not be written.
    CommitFails,
    Stop {
        policy: StopPolicy,
        cause: CauseKind,
        /// True if a receipt reports the open calls as stopped.
        accounted: bool,
    },
    Crash,
}

pub(super) fn ends() -> impl Strategy<Value = End> {
    let policy = prop_oneof![Just(StopPolicy::Rollback), Just(StopPolicy::Keep)];
    prop_oneof![
        3 => Just(End::Commit),
        1 => Just(End::CommitFails),
        4 => (policy, causes(), any::<bool>())
            .prop_map(|(policy, cause, accounted)| End::Stop { policy, cause, accounted }),
        1 => Just(End::Crash),
    ]
}

/// One ending of each kind. Each is used for a turn that is cut at any point.
pub(super) const ALL_ENDS: [End; 7] = [
    End::Commit,
    End::CommitFails,
    End::Crash,
    stop(StopPolicy::Rollback, CauseKind::User),
    stop(StopPolicy::Keep, CauseKind::Deadline),
    stop(StopPolicy::Keep, CauseKind::Guardrail),
    stop(StopPolicy::Keep, CauseKind::LeaseLost),
];

const fn stop(policy: StopPolicy, cause: CauseKind) -> End {
    End::Stop {
        policy,
        cause,
        accounted: true,
    }
}

/// Runs a turn and checks all its invariants.
pub(super) fn run_turn(session: &mut Session, steps: &[Try], end: End) {
    let before = session.state();
    let first = session.log.len();
    let decision = Arc::new(CommitDecision::new());
    let Ok(mut draft) = session.try_begin("go", Arc::clone(&decision)) else {
        assert_eq!(endings(&session.log[first..]), 1);
        assert_eq!(session.state().conversation(), before.conversation());
        return;
    };
    let mut books = Books::default();
    let mut state = session.state();
    for what in steps {
        for record in attempt(&mut draft, &decision, &mut books, what) {
            state.apply(&record).expect("live work and the fold agree");
            session.log.push(record);
        }
        // After each event, the state of the draft equals the state computed from the log, and the base (the
        // conversation before the turn) is unchanged.
        assert_eq!(state.open_turn(), Some(draft.state()));
        assert_eq!(draft.base(), before.conversation());
        assert_eq!(draft.state().metered(), books.metered);
        check_request(&draft);
    }
    let kept = finish(session, draft, &decision, end);
    session.check();
    let after = session.state();
    let records = &session.log[first..];
    assert_eq!(endings(records), 1);
    check_no_malformed_call_ran(records);
    let metered = |state: &SessionState| state.metered().total_tokens();
    assert!(metered(&after) >= metered(&before) + books.metered.total_tokens());
    let committed = |state: &SessionState| state.conversation().usage.total_tokens();
    if kept {
        assert_eq!(after.conversation().turns, before.conversation().turns + 1);
        let added = committed(&after) - committed(&before);
        assert!(
            added <= books.metered.total_tokens(),
            "more than was metered"
        );
        let old = &before.conversation().messages;
        assert!(after.conversation().messages.starts_with(old));
    } else {
        assert_eq!(
            shown(after.conversation()),
            shown(before.conversation()),
            "no half turn"
        );
    }
}

/// Ends the turn. Returns true if the turn adds messages to the conversation.
fn finish(session: &mut Session, draft: Draft, decision: &CommitDecision, end: End) -> bool {
    match end {
        End::Commit | End::CommitFails => match draft.commit(at()) {
            Ok(commit) => {
                assert!(decision.stopped_by().is_none());
                assert!(!decision.stop(user()), "a committed turn cannot be stopped");
                if let End::CommitFails = end {
                    let mut failed = commit.fail("the disk is full", at());
                    session.log.append(&mut failed.records);
                    session.conversation = failed.conversation;
                    return false;
                }
                session.log.push(commit.record().clone());
                session.conversation = commit.publish();
                true
            }
            Err(not) => stop_turn(
                session,
                not.draft,
                StopPolicy::Rollback,
                CauseKind::User,
                false,
            ),
        },
        End::Stop {
            policy,
            cause,
            accounted,
        } => stop_turn(session, draft, policy, cause, accounted),
        End::Crash => {
            drop(draft);
            recover(session);
            false
        }
    }
}

fn stop_turn(
    session: &mut Session,
    draft: Draft,
    policy: StopPolicy,
    cause: CauseKind,
    accounted: bool,
) -> bool {
    let first = draft.stopped_by().cloned();
    let mut stop = TurnStop::new(Cause::new(cause), policy, at());
    if accounted {
        stop = stop.receipt(account_of(&draft, cause));
    }
    let metered = draft.state().metered().total_tokens();
    let was_seen = draft.state().steps() > 0;
    let mut stopped = draft.stop(stop);
    if let Some(first) = first {
        assert_eq!(stopped.cause, first, "the first cause wins");
    }
    assert!(stopped.state.metered().total_tokens() >= metered);
    assert!(stopped.state.open_calls().is_empty());
    let is_unknown = |record: &SessionRecord| matches!(record, SessionRecord::CallFinished { outcome, .. } if *outcome == CallOutcome::Unknown);
    assert!(
        !accounted || !stopped.records.iter().any(is_unknown),
        "the receipt has an outcome for each call"
    );
    // If another process has taken over the session (`lease_lost`), that process writes the ending.
    let is_lost = stopped.cause.kind == CauseKind::LeaseLost;
    assert_eq!(stopped.records.is_empty(), is_lost);
    session.log.append(&mut stopped.records);
    session.conversation = Arc::clone(&stopped.conversation);
    match stopped.cause.kind {
        CauseKind::LeaseLost => recover(session),
        CauseKind::Guardrail => {}
        CauseKind::Superseded => return policy == StopPolicy::Keep,
        _ if was_seen => return policy == StopPolicy::Keep,
        _ => {}
    }
    assert_eq!(shown(&stopped.conversation), shown(&stopped.base));
    false
}

/// A receipt that reports every open call as stopped.
fn account_of(draft: &Draft, cause: CauseKind) -> Receipt {
    let request = StopInfo {
        stop_id: "stop".into(),
        target: "session/s/turn".into(),
        extent: Extent::Turn,
        cause: Cause::new(cause),
        requested_at: at(),
    };
    let stopped = ItemState::Stopped {
        how: EndMethod::Sigterm,
        evidence: Evidence::verified(EndProof::ProcessTreeEmpty),
        after_ms: Duration::from_millis(3).into(),
    };
    let items =
        draft.state().open_calls().iter().map(|call| {
            ReceiptItem::new(ItemKind::ToolCall, call.id.as_str(), "x", stopped.clone())
        });
    let findings = StopFindings {
        items: items.collect(),
        elapsed: Duration::from_millis(3),
    };
    Receipt::of_stop(request, findings)
}

/// Appends the records of a recovery, as the next start of a session would.
fn recover(session: &mut Session) {
    let records = session.state().recovery_records(at());
    session.log.extend(records);
    session.conversation = Arc::clone(session.state().conversation());
}

pub(super) fn endings(records: &[SessionRecord]) -> usize {
    let is_ending = |record: &&SessionRecord| {
        matches!(
            record,
            SessionRecord::TurnCommitted { .. } | SessionRecord::TurnStopped { .. }
        )
    };
    records.iter().filter(is_ending).count()
}

/// Checks that a call with malformed arguments is answered and never run: its end must directly follow its start.
fn check_no_malformed_call_ran(records: &[SessionRecord]) {
    for (at, record) in records.iter().enumerate() {
        if let SessionRecord::CallStarted { call, .. } = record
            && let StartedCallKind::Tool { arguments, .. } = &call.kind
            && matches!(arguments, Arguments::Malformed(_))
        {
            let next = records.get(at + 1);
            assert!(
                matches!(next, Some(SessionRecord::CallFinished { id, .. }) if *id == call.id),
                "{} ran with malformed arguments",
                call.id
            );
        }
    }
}
