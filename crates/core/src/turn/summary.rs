//! Summaries of turns and background work from a session's log, for display and for the next start.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::ids::{BackgroundId, CallId, MessageId, TurnNumber};
use crate::process::ProcessIdentity;
use crate::receipt::{ItemState, Receipt};
use crate::record::{Attachment, BackgroundKind, StartedCall};
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::usage::Usage;

/// Summary of one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnSummary {
    /// Number of the turn.
    pub turn: TurnNumber,
    /// Time of the start.
    pub started_at: Timestamp,
    /// Beginning of the user's message.
    pub input: Arc<str>,
    /// The process that ran the turn.
    pub owner: Option<ProcessIdentity>,
    /// Id of the message that caused the turn.
    pub message: Option<MessageId>,
    /// Number of started model calls.
    pub steps: u32,
    /// Usage of the turn: the metered total.
    pub metered: Usage,
    /// Calls with an unknown outcome.
    pub unknown_calls: Vec<StartedCall>,
    /// True if the turn was undone.
    pub undone: bool,
    /// The ending. `None` while the turn runs.
    pub ending: Option<TurnEnding>,
}

/// The ending of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnEnding {
    /// Time of the end.
    pub at: Timestamp,
    /// The reason.
    pub reason: StopReason,
    /// The first cause. `None` after a commit.
    pub cause: Option<Cause>,
    /// Receipt (the result) of the stop that ended the turn. `None` after a commit, or if there was nothing to stop.
    pub receipt: Option<Arc<Receipt>>,
}

/// Summary of one piece of background work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedWork {
    /// Id of the work.
    pub id: BackgroundId,
    /// Turn that started the work.
    pub turn: TurnNumber,
    /// Id of the message of that turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
    /// Call that started the work.
    pub call_id: CallId,
    /// The command.
    pub name: Arc<str>,
    /// Kind of work.
    pub kind: BackgroundKind,
    /// `Attached` if an idle session waits for the work.
    pub attachment: Attachment,
    /// Process of the work.
    pub process: Option<ProcessIdentity>,
    /// Keeper of the process: a small process that adopts and kills all descendants of the command.
    pub keeper: Option<ProcessIdentity>,
    /// Marker: a value in the environment of all processes of the work, by which a search finds the processes.
    pub marker: Option<Arc<str>>,
    /// Path of the output file.
    pub output: Option<Arc<str>>,
    /// State and exit code at the end of the work. `None` if the log does not contain the end.
    pub ended: Option<(ItemState, Option<i32>)>,
    /// End of a sub-agent's answer, or the reason of its failure with its calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Arc<str>>,
    /// True if a turn of the conversation has reported the end of the work to the model.
    #[serde(rename = "told")]
    pub reported: bool,
}

/// Maximum characters of the user's message in a turn's summary: one line of a wide terminal.
pub(super) const INPUT_EXCERPT_CHARS: usize = 120;

/// The beginning of a text, of at most this number of characters. A short text is shared instead of copied.
pub(super) fn excerpt(text: &Arc<str>, chars: usize) -> Arc<str> {
    match text.char_indices().nth(chars) {
        None => Arc::clone(text),
        Some((end, _)) => format!("{}…", &text[..end]).into(),
    }
}
