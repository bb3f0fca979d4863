//! Summaries of each turn and of background work in a session's log, for people and for the next start.

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

/// One turn, as the log tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnSummary {
    /// Its number.
    pub turn: TurnNumber,
    /// When it started.
    pub started_at: Timestamp,
    /// The beginning of the user's words.
    pub input: Arc<str>,
    /// The process that ran it.
    pub owner: Option<ProcessIdentity>,
    /// The message that caused it.
    pub message: Option<MessageId>,
    /// Number of model calls that it started.
    pub steps: u32,
    /// Its usage: the metered ledger.
    pub metered: Usage,
    /// The calls of which it is not known what they did.
    pub unknown_calls: Vec<StartedCall>,
    /// Whether it was taken back.
    pub undone: bool,
    /// Its ending; `None` while it is under way.
    pub ending: Option<TurnEnding>,
}

/// The ending of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnEnding {
    /// When.
    pub at: Timestamp,
    /// The reason.
    pub reason: StopReason,
    /// The first cause; `None` for a commit.
    pub cause: Option<Cause>,
    /// The receipt.
    pub receipt: Option<Arc<Receipt>>,
}

/// One piece of background work, as the log tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackgroundWork {
    /// Its id.
    pub id: BackgroundId,
    /// The turn that started it.
    pub turn: TurnNumber,
    /// The call that started it.
    pub call_id: CallId,
    /// The command.
    pub name: Arc<str>,
    /// Its kind.
    pub kind: BackgroundKind,
    /// Whether idle waits for it.
    pub attachment: Attachment,
    /// Its process.
    pub process: Option<ProcessIdentity>,
    /// The keeper of its process.
    pub keeper: Option<ProcessIdentity>,
    /// Marker that its processes carry in their environment.
    pub marker: Option<Arc<str>>,
    /// The file that its output goes to.
    pub output: Option<Arc<str>>,
    /// Its ending, with its exit code; `None` as far as the log knows it runs.
    pub ended: Option<(ItemState, Option<i32>)>,
    /// Whether the model was told of its end in a turn that stands.
    pub told: bool,
}

/// Characters of a turn's input that its summary keeps: a line of a wide terminal.
const INPUT_EXCERPT_CHARS: usize = 120;

/// The beginning of a text, shared if it is all of it.
pub(super) fn excerpt(text: &Arc<str>) -> Arc<str> {
    match text.char_indices().nth(INPUT_EXCERPT_CHARS) {
        None => Arc::clone(text),
        Some((end, _)) => format!("{}…", &text[..end]).into(),
    }
}
