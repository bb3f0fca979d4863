//! Report of a session, before it is formatted as text or as JSON.

use std::borrow::Cow;

use allstop_core::ids::BackgroundId;
use allstop_core::message::{Arguments, Effect};
use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::ItemState;
use allstop_core::record::{Attachment, BackgroundKind, StartedCall, StartedCallKind};
use allstop_core::turn::{
    Conversation, LostTurn, RecordedWork, SessionState, TurnEffects, TurnState, TurnSummary,
};
use allstop_core::{
    CallId, Cause, Message, Receipt, SessionId, StopReason, Timestamp, TurnNumber, Usage,
};
use allstop_remote::WorkReport;
use allstop_runtime::{Cost, OrphanedWork};
use serde::Serialize;

/// A session, as `sessions show --json` prints it. Every key is always present.
#[derive(Serialize)]
pub(super) struct SessionReport<'a> {
    #[serde(rename = "session_id")]
    pub(super) id: &'a SessionId,
    pub(super) opened_at: Option<Timestamp>,
    /// Working folder of the last opening.
    pub(super) folder: Option<&'a str>,
    /// Model of the last opening, if the log contains the model.
    pub(super) model: Option<&'a str>,
    pub(super) base_url: Option<&'a str>,
    /// Process that has the session open.
    pub(super) owner: Option<&'a ProcessIdentity>,
    pub(super) usage: Ledgers,
    /// Cost of the total usage. `null` if a price is unknown.
    pub(super) cost: Option<Cost>,
    pub(super) turns: Vec<TurnReport<'a>>,
    /// True if a compaction has replaced the oldest turns by a summary.
    pub(super) summed_up: bool,
    /// With `--full`: the calls of the conversation, with their results.
    pub(super) calls: Vec<RecordedCall<'a>>,
    /// Calls of a turn without an end in the log that may have changed something, including those whose results are
    /// already kept.
    pub(super) open_effects: Option<&'a TurnEffects>,
    /// Work that has not ended, from the process that has the session open, as in `allstop ps`.
    pub(super) running: &'a [WorkReport],
    /// Turns whose calls may have changed something although the conversation does not show them.
    pub(super) lost: Vec<LostTurnReport<'a>>,
    pub(super) background: Vec<Work<'a>>,
}

/// A turn whose calls may have changed something although the conversation does not show them.
#[derive(Serialize)]
pub(super) struct LostTurnReport<'a> {
    #[serde(flatten)]
    pub(super) turn: Cow<'a, LostTurn>,
    /// True if a later turn has sent the calls to the model.
    #[serde(rename = "reported")]
    pub(super) is_reported: bool,
}

/// A call of the conversation.
#[derive(Serialize)]
pub(super) struct RecordedCall<'a> {
    pub(super) id: &'a CallId,
    pub(super) name: &'a str,
    pub(super) arguments: &'a Arguments,
    /// Result that the model received: the output of the call, at most as long as its tool permits.
    pub(super) result: Option<&'a str>,
    pub(super) is_error: bool,
}

/// The two counts of tokens: the usage of the committed conversation, and the total usage, including stopped turns.
#[derive(Serialize)]
pub(super) struct Ledgers {
    pub(super) committed: Usage,
    pub(super) metered: Usage,
}

/// One turn: a message and the steps that answer it.
#[derive(Serialize)]
pub(super) struct TurnReport<'a> {
    #[serde(rename = "turn")]
    pub(super) number: TurnNumber,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    /// `null` while the turn runs. Also `null` if the process crashed and no other process has recovered the session
    /// yet.
    pub(super) stop_reason: Option<StopReason>,
    pub(super) cause: Option<&'a Cause>,
    /// The first part of the user's message.
    pub(super) input: &'a str,
    pub(super) steps: u32,
    pub(super) usage: Usage,
    /// True if the turn was undone.
    pub(super) undone: bool,
    pub(super) unknown_calls: Vec<UnknownCall<'a>>,
    /// Receipt of the stop, if the turn was stopped; only with `--full`.
    pub(super) receipt: Option<&'a Receipt>,
}

/// A call with an unknown result.
#[derive(Serialize)]
pub(super) struct UnknownCall<'a> {
    pub(super) id: &'a CallId,
    pub(super) name: &'a str,
    pub(super) arguments: Option<&'a Arguments>,
    pub(super) effect: Option<Effect>,
}

/// Background work.
#[derive(Serialize)]
pub(super) struct Work<'a> {
    pub(super) id: &'a BackgroundId,
    pub(super) name: &'a str,
    pub(super) turn: TurnNumber,
    pub(super) call_id: &'a CallId,
    #[serde(skip)]
    pub(super) kind: BackgroundKind,
    pub(super) attachment: Attachment,
    /// True if the work's process runs, according to the kernel. `null` if the log contains no process, or if the
    /// process is in another PID namespace, so this process cannot see it.
    pub(super) alive: Option<bool>,
    /// Pid of the process whose end also ends the work.
    pub(super) stop_pid: Option<u32>,
    pub(super) process: Option<&'a ProcessIdentity>,
    pub(super) keeper: Option<&'a ProcessIdentity>,
    pub(super) output: Option<&'a str>,
    /// End of the work, according to the log.
    pub(super) ended: Option<&'a ItemState>,
    pub(super) exit_code: Option<i32>,
    /// End of a sub-agent's answer, or the reason of its failure with its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<&'a str>,
}

impl<'a> SessionReport<'a> {
    pub(super) fn of(
        id: &'a SessionId,
        state: &'a SessionState,
        owner: Option<&'a ProcessIdentity>,
        running: &'a [WorkReport],
        with_receipts: bool,
    ) -> Self {
        let settings = state.settings();
        let folder = settings.map(|settings| &settings.folder).or(state.folder());
        Self {
            id,
            opened_at: state.opened_at(),
            folder: folder.map(AsRef::as_ref),
            model: settings.and_then(|settings| settings.model.as_deref()),
            base_url: settings.and_then(|settings| settings.base_url.as_deref()),
            owner,
            usage: Ledgers {
                committed: state.conversation().usage,
                metered: state.metered(),
            },
            cost: None,
            turns: state
                .turns()
                .iter()
                .map(|turn| TurnReport::of(turn, with_receipts))
                .collect(),
            summed_up: matches!(
                state.conversation().messages.first().map(AsRef::as_ref),
                Some(Message::Summary { .. })
            ),
            calls: if with_receipts {
                calls_of(state.conversation())
            } else {
                Vec::new()
            },
            open_effects: state.open_turn().map(TurnState::effects),
            running,
            lost: lost_turns(state, owner.is_some()),
            background: state.background().iter().map(Work::of).collect(),
        }
    }
}

/// The lost turns of the conversation. If no process has the session open, these include the turn that has no end in the
/// log: the next open ends it like this.
fn lost_turns(state: &SessionState, in_use: bool) -> Vec<LostTurnReport<'_>> {
    let conversation = state.conversation();
    let turns = conversation.all_lost().map(|turn| LostTurnReport {
        turn: Cow::Borrowed(turn),
        is_reported: !conversation.lost.contains(turn),
    });
    let crashed = if in_use {
        None
    } else {
        state.lost_calls_of_open_turn()
    };
    let crashed = crashed.map(|turn| LostTurnReport {
        turn: Cow::Owned(turn),
        is_reported: false,
    });
    turns.chain(crashed).collect()
}

fn calls_of(conversation: &Conversation) -> Vec<RecordedCall<'_>> {
    let mut calls: Vec<RecordedCall<'_>> = Vec::new();
    for message in &conversation.messages {
        match &**message {
            Message::Assistant { tool_calls, .. } => {
                calls.extend(tool_calls.iter().map(|call| RecordedCall {
                    id: &call.id,
                    name: &call.name,
                    arguments: &call.arguments,
                    result: None,
                    is_error: false,
                }));
            }
            Message::Tool(result) => {
                let mut last = calls.iter_mut().rev();
                if let Some(call) = last.find(|call| *call.id == result.call_id) {
                    call.result = Some(&result.content);
                    call.is_error = result.is_error;
                }
            }
            _ => {}
        }
    }
    calls
}

impl<'a> TurnReport<'a> {
    fn of(turn: &'a TurnSummary, with_receipt: bool) -> Self {
        let ending = turn.ending.as_ref();
        let receipt = ending.and_then(|ending| ending.receipt.as_deref());
        Self {
            number: turn.turn,
            started_at: turn.started_at,
            ended_at: ending.map(|ending| ending.at),
            stop_reason: ending.map(|ending| ending.reason),
            cause: ending.and_then(|ending| ending.cause.as_ref()),
            input: &turn.input,
            steps: turn.steps,
            usage: turn.metered,
            undone: turn.undone,
            unknown_calls: turn.unknown_calls.iter().map(UnknownCall::of).collect(),
            receipt: receipt.filter(|_| with_receipt),
        }
    }
}

impl<'a> UnknownCall<'a> {
    fn of(call: &'a StartedCall) -> Self {
        let (arguments, effect) = match &call.kind {
            StartedCallKind::Model { .. } => (None, None),
            StartedCallKind::Tool { arguments, effect } => (Some(arguments), Some(*effect)),
        };
        Self {
            id: &call.id,
            name: &call.name,
            arguments,
            effect,
        }
    }
}

impl<'a> Work<'a> {
    /// Creates the report. If the log contains no end of the work, checks if its processes still run.
    pub(super) fn of(work: &'a RecordedWork) -> Self {
        let (process, keeper) = (work.process.as_ref(), work.keeper.as_ref());
        let orphan = work.ended.is_none().then(|| OrphanedWork::of_record(work));
        let may_be_reported =
            |left: &OrphanedWork| (process.is_some() || keeper.is_some()) && !left.is_out_of_view();
        let alive = match &orphan {
            Some(left) => may_be_reported(left).then_some(left.alive),
            None => Some(false),
        };
        Self {
            id: &work.id,
            name: &work.name,
            turn: work.turn,
            call_id: &work.call_id,
            kind: work.kind,
            attachment: work.attachment,
            alive,
            stop_pid: orphan.and_then(|left| left.stop_pid()),
            process,
            keeper,
            output: work.output.as_deref(),
            ended: work.ended.as_ref().map(|(state, _)| state),
            exit_code: work.ended.as_ref().and_then(|(_, code)| *code),
            answer: work.answer.as_deref(),
        }
    }
}

impl Work<'_> {
    /// True if the work verifiably runs, so a stop would find the work.
    pub(super) fn runs(&self) -> bool {
        self.ended.is_none() && self.alive == Some(true)
    }

    /// True if the work cannot run while no process has the session open. A sub-agent runs in the process that has the
    /// session open.
    pub(super) fn is_gone(&self) -> bool {
        let is_agent = self.kind == BackgroundKind::Agent;
        self.ended.is_some() || is_agent || self.alive == Some(false)
    }
}
