//! The result of a run as one JSON object: `--json`.

use std::sync::Arc;

use allstop_agent::{Denial, TurnError};
use allstop_core::ids::BackgroundId;
use allstop_core::receipt::{ItemState, NotStoppedReason, StopInfo};
use allstop_core::{FinishReason, Receipt, SessionId, StopReason, TurnNumber, Usage};
use allstop_session::MessageOutcome;
use allstop_session::unended::UnendedWork;
use schemars::JsonSchema;
use serde::Serialize;

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
    /// Describes detached work; `None` if the work has no keeper to signal.
    pub fn of(work: &UnendedWork) -> Option<Self> {
        Some(Self {
            id: work.id.clone(),
            name: Arc::clone(&work.name),
            pid: work.keeper.as_ref()?.pid,
            output: work.output.as_deref().unwrap_or_default().to_owned(),
        })
    }
}

/// Result of a run. Every key is always present, `null` if unused.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "Allstop run")]
pub struct Envelope {
    /// Version of this format.
    pub schema: EnvelopeSchema,
    /// Id of the session; `null` if no session was opened.
    pub session_id: Option<SessionId>,
    /// Last turn of the run; `null` if no turn started.
    pub turn: Option<TurnNumber>,
    /// Reason for the end of the run: the one of its last turn; or, if that turn was committed and the wait for
    /// background work was stopped afterwards, the one of that stop.
    pub stop_reason: StopReason,
    /// True if the stop was acknowledged at a checkpoint and nothing in its extent is left. False without a stop.
    pub cancel_observed: bool,
    /// Final answer of the last turn; empty unless that turn was committed.
    #[schemars(with = "String")]
    pub output: Arc<str>,
    /// Model's reason for the end of that answer: `length` and `content_filter` mean a cut-off answer. `null` unless
    /// the last turn completed.
    pub finish: Option<FinishReason>,
    /// Sum of the steps of all turns of the run.
    pub steps: u32,
    /// Total usage of the run.
    pub usage: Usage,
    /// Denied calls of all turns of the run.
    pub denials: Vec<Denial>,
    /// Receipt of everything that was stopped or could not be stopped; `null` if nothing had to be stopped.
    pub receipt: Option<Arc<Receipt>>,
    /// Background work that was detached and outlives the command.
    pub background: Vec<DetachedWork>,
    /// Error of the run.
    pub error: Option<TurnError>,
    /// Exit code of the command.
    pub exit_code: u8,
}

impl Envelope {
    /// Envelope of a run from the outcomes of its messages, each with a turn; `None` without a turn.
    pub fn of_run(session_id: &SessionId, turns: &[Arc<MessageOutcome>]) -> Option<Self> {
        let last = turns.last()?;
        let receipt = receipt_of(turns, last);
        Some(Self {
            turn: last.turn,
            cancel_observed: receipt
                .as_ref()
                .is_some_and(|receipt| receipt.cancel_observed()),
            output: Arc::clone(&last.output),
            finish: last.finish,
            steps: turns.iter().map(|turn| turn.steps).sum(),
            usage: turns
                .iter()
                .fold(Usage::default(), |sum, turn| sum + turn.usage),
            denials: turns
                .iter()
                .flat_map(|turn| turn.denials.iter().cloned())
                .collect(),
            receipt,
            ..Self::of_no_run(
                Some(session_id.clone()),
                last.stop_reason,
                last.error.clone(),
            )
        })
    }

    /// Envelope of a run without a turn: it failed to start, was stopped before, or lost its engine.
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
            cancel_observed: false,
            output: "".into(),
            finish: None,
            steps: 0,
            usage: Usage::default(),
            denials: Vec::new(),
            receipt: None,
            background: Vec::new(),
            error,
            exit_code: stop_reason.exit_code(),
        }
    }

    /// Replaces the receipt by that of a wider stop after the turn's end, which covers the background work.
    /// `cancel_observed` stays true only if that stop left nothing.
    #[must_use]
    pub fn with_receipt(mut self, receipt: Arc<Receipt>) -> Self {
        self.cancel_observed &= !has_leftovers(&receipt);
        self.receipt = Some(receipt);
        self
    }

    /// Replaces the exit code: 129 after a SIGHUP.
    #[must_use]
    pub fn with_exit_code(mut self, exit_code: u8) -> Self {
        self.exit_code = exit_code;
        self
    }
}

/// Receipt of everything that the run stopped, in all of its turns. Its request time is that of the first receipt with
/// the newest receipt's cause.
fn receipt_of(turns: &[Arc<MessageOutcome>], last: &MessageOutcome) -> Option<Arc<Receipt>> {
    let receipts = turns.iter().filter_map(|turn| turn.receipt.clone());
    let receipts: Vec<_> = receipts.collect();
    let newest = receipts.last()?;
    if receipts.len() == 1 {
        return Some(Arc::clone(newest));
    }
    let same = receipts
        .iter()
        .find(|receipt| receipt.cause() == newest.cause());
    let request = StopInfo {
        requested_at: same.unwrap_or(newest).request().requested_at,
        ..newest.request().clone()
    };
    let whole = Receipt::of_parts(request, &receipts);
    let effect = last.receipt.as_deref().map(Receipt::conversation);
    let usage = turns
        .iter()
        .fold(Usage::default(), |sum, turn| sum + turn.usage);
    let whole = whole.with_conversation(effect.unwrap_or_default());
    Some(Arc::new(whole.with_usage(usage)))
}

fn has_leftovers(receipt: &Receipt) -> bool {
    receipt.items().iter().any(|item| {
        matches!(
            item.state,
            ItemState::StillRunning { why } if why != NotStoppedReason::OutsideExtent
        ) || matches!(item.state, ItemState::Unreachable { .. })
    })
}
