//! Random actions on a turn. An illegal action is refused, and must change nothing.

use allstop_core::decision::CommitDecision;
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::turn::{Draft, DraftError, IllegalEvent, NextAction};
use allstop_core::{CallId, Cause, CauseKind, Effect, FinishReason, ToolCall, Usage};
use proptest::prelude::*;
use serde_json::json;

use crate::driver::*;

/// One action on a turn, which may be illegal.
#[derive(Debug, Clone)]
pub(super) enum Try {
    Step { estimate: u64 },
    Meter { tokens: u64 },
    Answer { calls: Vec<Asked>, cost: u64 },
    Abandon { outcome: CallOutcome, cost: u64 },
    Begin(usize),
    Finish(usize, CallOutcome),
    Deny(usize),
    Reject(usize),
    StopFalls(CauseKind),
}

/// Kind of a call that the model requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked {
    Well,
    Malformed,
}

pub(super) fn tries() -> impl Strategy<Value = Try> {
    let asked = prop_oneof![4 => Just(Asked::Well), 1 => Just(Asked::Malformed)];
    let calls = prop::collection::vec(asked, 0..4);
    prop_oneof![
        4 => (0..40_u64).prop_map(|estimate| Try::Step { estimate }),
        1 => (0..40_u64).prop_map(|tokens| Try::Meter { tokens }),
        4 => (calls, 0..40_u64).prop_map(|(calls, cost)| Try::Answer { calls, cost }),
        1 => (outcomes(), 0..40_u64).prop_map(|(outcome, cost)| Try::Abandon { outcome, cost }),
        4 => (0..4_usize).prop_map(Try::Begin),
        4 => (0..4_usize, outcomes()).prop_map(|(at, outcome)| Try::Finish(at, outcome)),
        1 => (0..4_usize).prop_map(Try::Deny),
        2 => (0..4_usize).prop_map(Try::Reject),
        1 => causes().prop_map(Try::StopFalls),
    ]
}

fn outcomes() -> impl Strategy<Value = CallOutcome> {
    prop::sample::select(vec![
        CallOutcome::Succeeded,
        CallOutcome::Failed,
        CallOutcome::TimedOut,
        CallOutcome::Unknown,
    ])
}

/// Causes that end a turn in different ways.
pub(super) fn causes() -> impl Strategy<Value = CauseKind> {
    prop::sample::select(vec![
        CauseKind::User,
        CauseKind::Deadline,
        CauseKind::Guardrail,
        CauseKind::LeaseLost,
    ])
}

/// Expected values, which the test records.
#[derive(Debug, Default)]
pub(super) struct Books {
    asked: Vec<ToolCall>,
    pub(super) metered: Usage,
}

impl Books {
    fn id(&self, at: usize) -> CallId {
        let asked = self.asked.get(at).map(|call| call.id.clone());
        asked.unwrap_or_else(|| "nobody".into())
    }
}

/// Tries the action and returns its records.
pub(super) fn attempt(
    draft: &mut Draft,
    decision: &CommitDecision,
    books: &mut Books,
    what: &Try,
) -> Vec<SessionRecord> {
    let stopped = decision.stopped_by().is_some();
    match what {
        Try::Step { estimate } => match draft.begin_step(&model(), *estimate, at()) {
            Ok(step) => {
                assert!(!stopped, "a step starts after the stop");
                vec![step.record]
            }
            Err(_) => Vec::new(),
        },
        Try::Meter { tokens } => {
            draft.meter(usage(*tokens, 0));
            Vec::new()
        }
        Try::Answer { calls, cost } => {
            // Like a provider that numbers the calls of each message from zero.
            let calls = (0..).zip(calls).map(|(at, asked): (u8, _)| match asked {
                Asked::Well => call(&format!("call_{at}"), "read", json!({})),
                Asked::Malformed => malformed(&format!("call_{at}"), "read", "{"),
            });
            let cost = usage(*cost, 1);
            let Ok(answer) = draft.finish_model("text", calls.collect(), cost, FinishReason::Done)
            else {
                return Vec::new();
            };
            books.metered += cost;
            if let NextAction::Calls(calls) = answer.next {
                books.asked = calls;
            }
            vec![answer.record]
        }
        Try::Abandon { outcome, cost } => {
            let cost = usage(*cost, 0);
            let Ok(record) = draft.abandon_model(*outcome, cost) else {
                return Vec::new();
            };
            books.metered += cost;
            vec![record]
        }
        Try::Begin(place) => begin(draft, &books.id(*place), stopped),
        Try::Finish(place, outcome) => {
            let result = result(&books.id(*place), "done");
            draft.finish_call(result, *outcome).into_iter().collect()
        }
        Try::Deny(place) => draft
            .deny_call(&books.id(*place), "no", at())
            .map_or_else(|_| Vec::new(), Vec::from),
        Try::Reject(place) => draft
            .reject_call(&books.id(*place), "bad", at())
            .map_or_else(|_| Vec::new(), Vec::from),
        Try::StopFalls(kind) => {
            decision.stop(Cause::new(*kind));
            Vec::new()
        }
    }
}

fn begin(draft: &mut Draft, id: &CallId, stopped: bool) -> Vec<SessionRecord> {
    match draft.begin_call(id, Effect::Idempotent, at()) {
        Ok(record) => {
            assert!(!stopped, "a call starts after the stop");
            vec![record]
        }
        Err(DraftError::Illegal(IllegalEvent::MalformedArguments(refused))) => {
            assert_eq!(refused, *id);
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}
