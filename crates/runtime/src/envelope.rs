//! What a run came to, as one JSON object: `--json`.

use std::sync::Arc;

use allstop_agent::{Denial, TurnError};
use allstop_core::ids::BackgroundId;
use allstop_core::receipt::{ItemState, StopRequest, Why};
use allstop_core::{FinishReason, Receipt, SessionId, StopReason, TurnNumber, Usage};
use allstop_session::MessageOutcome;
use allstop_session::found::FoundWork;
use schemars::JsonSchema;
use serde::Serialize;

/// The version of the envelope's form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum EnvelopeSchema {
    /// The first.
    #[default]
    #[serde(rename = "allstop.run/1")]
    V1,
}

/// Background work that runs on without the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftWork {
    /// Its id in the session.
    pub id: BackgroundId,
    /// The command.
    #[schemars(with = "String")]
    pub name: Arc<str>,
    /// SIGTERM to this process ends all of it.
    pub pid: u32,
    /// The file that its output goes to.
    pub output: String,
}

impl LeftWork {
    /// Work that was detached; `None` if it has no keeper that could be told.
    pub fn of(work: &FoundWork) -> Option<Self> {
        Some(Self {
            id: work.id.clone(),
            name: Arc::clone(&work.name),
            pid: work.keeper.as_ref()?.pid,
            output: work.output.as_deref().unwrap_or_default().to_owned(),
        })
    }
}

/// What a run came to. Every key is always there, `null` where it is unused.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "Allstop run")]
pub struct Envelope {
    /// The version of this form.
    pub schema: EnvelopeSchema,
    /// The session; `null` if none was opened.
    pub session_id: Option<SessionId>,
    /// The last turn of the run; `null` if none started.
    pub turn: Option<TurnNumber>,
    /// Why the run ended: why its last turn did; or, where that was committed and the wait for background work was stopped
    /// afterwards, why that was.
    pub stop_reason: StopReason,
    /// Whether the stop was acknowledged at a checkpoint and nothing in its extent is left. False without a stop.
    pub cancel_observed: bool,
    /// The final answer of the last turn; empty unless that was committed.
    #[schemars(with = "String")]
    pub output: Arc<str>,
    /// How the model ended that answer: `length` and `content_filter` say that it was cut off. `null` unless the last
    /// turn completed.
    pub finish: Option<FinishReason>,
    /// Steps of the run's turns together.
    pub steps: u32,
    /// The metered usage of the run.
    pub usage: Usage,
    /// Calls that somebody said no to, in all turns of the run.
    pub denials: Vec<Denial>,
    /// What stopped and what did not; `null` where nothing had to be stopped.
    pub receipt: Option<Arc<Receipt>>,
    /// Background work that was kept and runs on without the command.
    pub background: Vec<LeftWork>,
    /// What failed.
    pub error: Option<TurnError>,
    /// The exit code of the command.
    pub exit_code: u8,
}

impl Envelope {
    /// Of the messages of a run, each with its turn, of which there is at least one.
    pub fn of_run(session_id: SessionId, turns: &[Arc<MessageOutcome>]) -> Self {
        let Some(last) = turns.last() else {
            return Self::of_no_run(Some(session_id), StopReason::Completed, None);
        };
        let receipt = receipt_of(turns, last);
        Self {
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
            ..Self::of_no_run(Some(session_id), last.stop_reason, last.error.clone())
        }
    }

    /// Of a run that never had a turn: it failed to start, was stopped before, or its engine was lost.
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

    /// The same, with the receipt of a wider stop that came after the turn's ending: of the background work. What the
    /// turn's engine acknowledged stays so, unless that stop left something.
    #[must_use]
    pub fn with_receipt(mut self, receipt: Arc<Receipt>) -> Self {
        self.cancel_observed &= !leaves_something(&receipt);
        self.receipt = Some(receipt);
        self
    }

    /// The same, with another exit code: 129 after a SIGHUP.
    #[must_use]
    pub fn with_exit_code(mut self, exit_code: u8) -> Self {
        self.exit_code = exit_code;
        self
    }
}

/// Receipt of all that was stopped in the run: in its last turn, and in what followed the turns before that. It was
/// requested when the last one's cause first was.
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
    let request = StopRequest {
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

fn leaves_something(receipt: &Receipt) -> bool {
    receipt.items().iter().any(|item| {
        matches!(
            item.state,
            ItemState::StillRunning { why } if why != Why::OutsideExtent
        ) || matches!(item.state, ItemState::Unreachable { .. })
    })
}
