//! Answers of `allstop stop`.

use allstop_core::receipt::ConversationEffect;
use allstop_core::{Receipt, SessionId, StopReason};
use allstop_remote::StopResult;
use serde::Serialize;

use crate::args::StoreArgs;
use crate::error::{CliError, ErrorReport};
use crate::json_document::DocumentSchema;
use crate::shell_command::SameFlags;

/// Result of the stop of one session or command, as a part of the JSON object.
#[derive(Debug, Serialize)]
pub(super) struct SessionStopLine {
    /// Id of the session or of the command.
    pub(super) session_id: SessionId,
    /// True for a command that belongs to no session.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_command: bool,
    /// Stop reason of the last turn, if the session ended before the stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stop_reason: Option<StopReason>,
    pub(super) receipt: Receipt,
}

impl SessionStopLine {
    pub(super) fn new(session_id: SessionId, receipt: Receipt) -> Self {
        let stop_reason = None;
        Self::answered(
            session_id,
            StopResult {
                receipt,
                stop_reason,
            },
        )
    }

    /// The answer of a process.
    pub(super) fn answered(session_id: SessionId, answer: StopResult) -> Self {
        Self {
            session_id,
            is_command: false,
            stop_reason: answer.stop_reason,
            receipt: answer.receipt,
        }
    }

    /// The answer of a process about a command that belongs to no session.
    pub(super) fn of_command(id: SessionId, answer: StopResult) -> Self {
        Self {
            is_command: true,
            ..Self::answered(id, answer)
        }
    }

    /// True if the stop has ended a turn, and the store has not confirmed the record of this end.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.receipt.outcome().is_none()
            && self.receipt.conversation() == ConversationEffect::Unknown
    }
}

/// Keys of the object of `stop ID --json`.
#[derive(Serialize)]
struct StopKeys<'a> {
    #[serde(flatten)]
    stop: &'a SessionStopLine,
    problems: Vec<ErrorReport<'a>>,
}

/// Keys of the object of `stop --all --json`.
#[derive(Serialize)]
struct StopAllKeys<'a> {
    stops: &'a [SessionStopLine],
    problems: Vec<ErrorReport<'a>>,
}

/// Results of the stopped sessions, and the work that could not be stopped.
#[derive(Debug, Default)]
pub(super) struct StopResults {
    pub(super) answers: Vec<SessionStopLine>,
    /// Warnings about work that may still run.
    pub(super) problems: Vec<CliError>,
    /// Remarks about the answers, one per line.
    pub(super) notes: Vec<String>,
}

impl StopResults {
    /// Adds the results of another stop.
    pub(super) fn extend(&mut self, other: Self) {
        self.answers.extend(other.answers);
        self.problems.extend(other.problems);
        self.notes.extend(other.notes);
    }

    /// Adds the answer of a process with this store. Names the command that later shows an unconfirmed end of a turn.
    pub(super) fn answered(&mut self, answer: SessionStopLine, store: &StoreArgs) {
        if answer.is_unconfirmed() {
            let flags = SameFlags::of_store(store);
            let show = flags.command(&format!("sessions show {}", answer.session_id));
            self.notes.push(format!(
                "the store has not confirmed the end of the turn: `{show}` shows this end when the store answers again"
            ));
        }
        self.answers.push(answer);
    }

    /// The results as a JSON object. `None` if the session that the command names has no result: its problem is then the
    /// failure of the command.
    pub(super) fn json(&self, is_all: bool) -> Option<String> {
        let problems = || self.problems.iter().map(CliError::report).collect();
        if is_all {
            return Some(DocumentSchema::StopAll.line(&StopAllKeys {
                stops: &self.answers,
                problems: problems(),
            }));
        }
        let stop = self.answers.first()?;
        Some(DocumentSchema::Stop.line(&StopKeys {
            stop,
            problems: problems(),
        }))
    }

    /// Adds a failure without a remedy.
    pub(super) fn problem(&mut self, message: &impl ToString) {
        self.problems.push(CliError::failure(message.to_string()));
    }
}
