//! Requests to a process that owns sessions, and their answers.

use std::path::PathBuf;
use std::time::Duration;

use allstop_core::ids::QuestionId;
use allstop_core::receipt::ReceiptItem;
use allstop_core::{CallId, Receipt, SessionId, StopId, Timestamp, TurnNumber, Usage};
use allstop_jsonrpc::RpcError;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::watch_event::{WatchEvent, WatcherAnswer};

/// Lists the sessions of the process and their work.
pub(super) const LIST: &str = "allstop.list";
/// Stops work of a session.
pub(super) const STOP: &str = "allstop.stop";
/// Notification: the stop is accepted, and nothing more of its extent starts.
pub(super) const ACCEPTED: &str = "allstop.accepted";
/// Watches a session: the answer says what its turn is doing, and notifications follow.
pub(super) const WATCH: &str = "allstop.watch";
/// Notification: a [`WatchEvent`].
pub(super) const EVENT: &str = "allstop.event";
/// Answers a permission question.
pub(super) const ANSWER: &str = "allstop.answer";

/// Code of the error for a session that is not open.
const NOT_OPEN: i64 = -32_001;

/// Error for a session that is not open here.
pub(super) fn not_open_error(session: &SessionId) -> RpcError {
    RpcError {
        data: Some(session.as_str().into()),
        ..RpcError::new(NOT_OPEN, format!("session {session} is not open here"))
    }
}

/// The session of an error with this code.
pub(super) fn not_open(error: &RpcError) -> Option<SessionId> {
    let session = error.data.as_ref().filter(|_| error.code == NOT_OPEN);
    session?.as_str().map(SessionId::new)
}

/// A process that owns sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProcessReport {
    pub(crate) pid: u32,
    /// The command, such as `chat`.
    pub(crate) command: String,
    pub(crate) folder: PathBuf,
    /// File of its store, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<PathBuf>,
    pub(crate) started_at: Timestamp,
    pub(crate) sessions: Vec<OwnedSessionReport>,
}

/// An open session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OwnedSessionReport {
    pub(crate) session_id: SessionId,
    /// Name of its model.
    pub(crate) model: String,
    /// True if a turn runs or waits.
    pub(crate) is_busy: bool,
    /// Milliseconds since its last record, or since it was opened, by the monotonic clock of its process.
    #[serde(default)]
    pub(crate) quiet_ms: u64,
    /// Permission questions that wait for an answer, in one line each.
    pub(crate) questions: Vec<String>,
    /// True if whoever watches the session may answer them: those of a served task are its client's.
    #[serde(default = "yes")]
    pub(crate) takes_answers: bool,
    /// The turn that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) turn: Option<RunningTurnReport>,
    /// All that runs, as a dry run of a stop finds it.
    pub(crate) work: Vec<WorkReport>,
}

fn yes() -> bool {
    true
}

/// The turn that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunningTurnReport {
    pub(crate) turn: TurnNumber,
    /// Milliseconds since its start, by the monotonic clock of its process.
    pub(crate) age_ms: u64,
    /// Tokens of its calls that have ended.
    pub(crate) usage: Usage,
}

/// A piece of work that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkReport {
    #[serde(flatten)]
    pub(crate) item: ReceiptItem,
    /// Milliseconds since its start, by the monotonic clock of its process; absent where nobody saw it start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) age_ms: Option<u64>,
}

/// Part of a session to stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum RemoteExtent {
    /// The running turn; background work goes on
    Turn,
    /// The turn and all background work, detached work too; the session goes on
    #[default]
    TurnAndBackground,
    /// All of the session, which is closed
    Session,
}

/// Request of a stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteStopParams {
    pub(crate) session_id: SessionId,
    pub(crate) extent: RemoteExtent,
    /// One call of the running turn, in place of the extent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<CallId>,
    /// True: uses force at once.
    pub(crate) now: bool,
    /// True: a dry run.
    pub(crate) preview: bool,
    /// Name of the asking program, for the receipt.
    pub(crate) by: String,
}

/// Parameters of [`ACCEPTED`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct AcceptedParams {
    pub(super) stop_id: StopId,
}

/// Answer of [`STOP`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StopResult {
    pub(super) receipt: Receipt,
}

/// Request of a watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct WatchParams {
    pub(super) session_id: SessionId,
}

/// Answer of [`WATCH`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WatchResult {
    /// State of the running turn.
    pub(super) events: Vec<WatchEvent>,
}

/// Answer to a permission question from another terminal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AnswerParams {
    pub(crate) session_id: SessionId,
    pub(crate) question_id: QuestionId,
    pub(crate) answer: WatcherAnswer,
    /// Name of the asking program, for the terminal of the session.
    pub(crate) by: String,
}

/// Answer of [`ANSWER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AnswerReport {
    /// True if this answer was the first.
    pub(super) is_taken: bool,
}

/// Whole milliseconds, for the wire.
pub(super) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
