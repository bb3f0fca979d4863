//! The result of a run as one JSON object (the envelope), for `--json`.

use std::sync::Arc;

use crate::cost::Cost;
use allstop_agent::TurnError;
use allstop_core::ids::BackgroundId;
use allstop_core::receipt::ConversationEffect;
use allstop_core::record::CallOutcome;
use allstop_core::turn::LostTurn;
use allstop_core::{
    CallId, Cause, Effect, FinishReason, Receipt, SessionId, StopReason, TurnNumber, Usage,
};
use allstop_session::MessageOutcome;
use allstop_session::orphan_scan::OrphanedWork;
use allstop_tools::Denial;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Version of the envelope's format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum EnvelopeSchema {
    /// Version 1.
    #[default]
    #[serde(rename = "allstop.run/1")]
    V1,
}

/// Background work that outlives the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DetachedWork {
    /// Id of the work in the session.
    pub id: BackgroundId,
    /// Command line of the work.
    #[schemars(with = "String")]
    pub name: Arc<str>,
    /// Process that ends all of the work on SIGTERM.
    pub pid: u32,
    /// File that receives the output.
    pub output: String,
}

impl DetachedWork {
    /// Describes detached work. `None` if the work has no keeper: the process that holds the work and ends it on a
    /// signal.
    pub fn of(work: &OrphanedWork) -> Option<Self> {
        Some(Self {
            id: work.id.clone(),
            name: Arc::clone(&work.name),
            pid: work.keeper.as_ref()?.pid,
            output: work.output.as_deref().unwrap_or_default().to_owned(),
        })
    }
}

/// A call that may have changed something although the conversation does not show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LostCall {
    /// Id of the call.
    pub call_id: CallId,
    /// The tool.
    #[schemars(with = "String")]
    pub tool: Arc<str>,
    /// The most informative argument; `null` if there is none.
    #[schemars(with = "Option<String>")]
    pub label: Option<Arc<str>>,
    /// Effect of repeating the call.
    pub effect: Effect,
    /// Outcome of the call, or of the work that it has left in the background: `unknown` means that the call may have had
    /// its effect.
    pub outcome: CallOutcome,
    /// Beginning of the result; `null` if there is none.
    #[schemars(with = "Option<String>")]
    pub result: Option<Arc<str>>,
}

impl LostCall {
    fn of_turn(lost: &LostTurn) -> impl Iterator<Item = Self> {
        lost.effects.calls.iter().map(|call| Self {
            call_id: call.id.clone(),
            tool: Arc::clone(&call.name),
            label: call.label.clone(),
            effect: call.effect,
            outcome: match call.outcome {
                Some(outcome) if !call.is_outcome_unknown() => outcome,
                _ => CallOutcome::Unknown,
            },
            result: call.result.clone(),
        })
    }
}

/// Result of one turn of a run. Every key is always present, with `null` if unused.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TurnResult {
    /// Number of the turn in the session; `null` if the turn did not start.
    pub turn: Option<TurnNumber>,
    /// Reason for the end of the turn.
    pub stop_reason: StopReason,
    /// Cause of the stop reason; `null` if the turn was committed.
    pub cause: Option<Cause>,
    /// Answer; empty unless the turn was committed.
    #[schemars(with = "String")]
    pub output: Arc<str>,
    /// Model's reason for the end of the answer; `null` unless the turn completed.
    pub finish: Option<FinishReason>,
    /// Number of steps.
    pub steps: u32,
    /// Usage of the turn.
    pub usage: Usage,
    /// Denied calls of the turn and of the sub-agents that it waited for.
    pub denials: Vec<Denial>,
    /// Receipt of the stop of the turn; `null` if there was nothing to stop.
    pub receipt: Option<Arc<Receipt>>,
    /// Error of the turn; `null` if the turn did not fail.
    pub error: Option<TurnError>,
}

impl TurnResult {
    fn of(outcome: &MessageOutcome) -> Self {
        Self {
            turn: outcome.turn,
            stop_reason: outcome.stop_reason,
            cause: outcome.cause.clone(),
            output: Arc::clone(&outcome.output),
            finish: outcome.finish,
            steps: outcome.steps,
            usage: outcome.usage,
            denials: outcome.denials.clone(),
            receipt: outcome.receipt.clone(),
            error: outcome.error.clone(),
        }
    }
}

/// Result of a run. Every key is always present, with `null` if unused.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "Allstop run")]
pub struct Envelope {
    /// Version of this format.
    pub schema: EnvelopeSchema,
    /// Id of the session; `null` if no session was opened.
    pub session_id: Option<SessionId>,
    /// Last turn of the run; `null` if no turn started.
    pub turn: Option<TurnNumber>,
    /// Reason for the end of the run: the stop reason of its last turn. If that turn was committed and a stop ended the
    /// wait for background work afterwards, the reason of that stop.
    pub stop_reason: StopReason,
    /// Cause of the stop reason; `null` if the run completed, or never began.
    pub cause: Option<Cause>,
    /// True if each stop was acknowledged at a checkpoint and no work in its extent is left. False without a stop.
    pub cancel_observed: bool,
    /// Final answer of the last turn; empty unless that turn was committed.
    #[schemars(with = "String")]
    pub output: Arc<str>,
    /// The final answer as a JSON value, with `--output-schema`; `null` without it, or unless the last turn was committed.
    pub output_json: Option<Value>,
    /// Model's reason for the end of that answer: `length` and `content_filter` mean a truncated answer. `null` unless
    /// the last turn completed.
    pub finish: Option<FinishReason>,
    /// Sum of the steps of all turns of the run.
    pub steps: u32,
    /// Total usage of the run.
    pub usage: Usage,
    /// Cost of the run by the listed or configured prices; `null` if no model was called or if a price is unknown.
    pub cost: Option<Cost>,
    /// The turns of the run in their order: one for each prompt that was sent. The last one has the `output` of the run.
    pub turns: Vec<TurnResult>,
    /// Denied calls of all turns of the run, of their sub-agents, and of sub-agents in the background.
    pub denials: Vec<Denial>,
    /// Calls of the last turn that may have changed something although the conversation does not show them, because the
    /// turn was not committed. The next turn of the session reports them to the model.
    pub lost_calls: Vec<LostCall>,
    /// Calls of earlier turns of the session that may have changed something although the conversation did not show them.
    /// The first turn of the run reported them to the model.
    pub reported_calls: Vec<LostCall>,
    /// Receipt of the last stop of the run, as in the log; `null` if there was nothing to stop.
    pub receipt: Option<Arc<Receipt>>,
    /// Receipts of all stops of the run in their order, including the last one. For example, the receipt of a turn that
    /// reached its budget, and the receipt of the background work that the turn left.
    pub receipts: Vec<Arc<Receipt>>,
    /// Background work that was detached and outlives the command.
    pub background: Vec<DetachedWork>,
    /// Error of the run; `null` if the run did not fail.
    pub error: Option<TurnError>,
    /// Exit code of the command.
    pub exit_code: u8,
}

impl Envelope {
    /// Creates the envelope of a run from the outcomes of its messages. Each of these messages had a turn. `None` if
    /// there are no outcomes.
    pub fn of_run(session_id: &SessionId, turns: &[Arc<MessageOutcome>]) -> Option<Self> {
        let last = turns.last()?;
        let mut envelope = Self {
            turn: last.turn,
            cause: last.cause.clone(),
            output: Arc::clone(&last.output),
            finish: last.finish,
            steps: turns.iter().map(|turn| turn.steps).sum(),
            usage: turns
                .iter()
                .fold(Usage::default(), |sum, turn| sum + turn.usage),
            turns: turns.iter().map(|turn| TurnResult::of(turn)).collect(),
            lost_calls: last.lost.iter().flat_map(LostCall::of_turn).collect(),
            denials: turns
                .iter()
                .flat_map(|turn| turn.denials.iter().cloned())
                .collect(),
            ..Self::of_no_run(
                Some(session_id.clone()),
                last.stop_reason,
                last.error.clone(),
            )
        };
        let receipts = turns.iter().filter_map(|turn| turn.receipt.clone());
        receipts.for_each(|receipt| envelope.add_receipt(receipt));
        Some(envelope)
    }

    /// Creates the envelope of a run without a turn. Such a run failed to start, was stopped before its first turn, or
    /// lost its turn engine.
    pub fn of_no_run(
        session_id: Option<SessionId>,
        stop_reason: StopReason,
        error: Option<TurnError>,
    ) -> Self {
        Self {
            schema: EnvelopeSchema::V1,
            session_id,
            turn: None,
            stop_reason,
            cause: None,
            cancel_observed: false,
            output: "".into(),
            output_json: None,
            finish: None,
            steps: 0,
            usage: Usage::default(),
            cost: None,
            turns: Vec::new(),
            denials: Vec::new(),
            lost_calls: Vec::new(),
            reported_calls: Vec::new(),
            receipt: None,
            receipts: Vec::new(),
            background: Vec::new(),
            error,
            exit_code: stop_reason.exit_code(),
        }
    }

    /// Replaces the calls of the last turn that the conversation does not show, because work that they had started in the
    /// background has ended since.
    pub fn set_lost(&mut self, lost: &LostTurn) {
        if self.turn == Some(lost.turn) {
            self.lost_calls = LostCall::of_turn(lost).collect();
        }
    }

    /// Adds turns whose calls the first turn of the run reported to the model. Adds nothing if that turn had no step.
    pub fn add_reported(&mut self, turns: &[LostTurn]) {
        if self.steps > 0 {
            let calls = turns.iter().flat_map(LostCall::of_turn);
            self.reported_calls.extend(calls);
        }
    }

    /// Adds the receipt of a stop. Skips the receipt if the stop had no work to do, the receipt lists no items, and the
    /// conversation is unchanged. If the receipt of a turn has the same stop id, replaces it, because the new receipt
    /// describes the whole stop.
    pub fn add_receipt(&mut self, receipt: Arc<Receipt>) {
        let tells =
            !receipt.items().is_empty() || receipt.conversation() != ConversationEffect::Unchanged;
        if receipt.outcome().is_some() && !tells {
            return;
        }
        self.receipts
            .retain(|other| other.stop_id() != receipt.stop_id());
        let is_of_turn = |turn: &&mut TurnResult| {
            let own = turn.receipt.as_ref();
            own.is_some_and(|own| own.stop_id() == receipt.stop_id())
        };
        for turn in self.turns.iter_mut().filter(is_of_turn) {
            turn.receipt = Some(Arc::clone(&receipt));
        }
        let before = |other: &Arc<Receipt>| other.request().order() <= receipt.request().order();
        let place = self.receipts.partition_point(before);
        self.receipts.insert(place, receipt);
        self.receipt = self.receipts.last().cloned();
        let mut all = self.receipts.iter();
        self.cancel_observed = all.all(|receipt| receipt.cancel_observed());
    }

    /// Replaces the exit code, such as by 129 after a SIGHUP.
    #[must_use]
    pub fn with_exit_code(mut self, exit_code: u8) -> Self {
        self.exit_code = exit_code;
        self
    }
}
