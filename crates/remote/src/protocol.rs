//! Requests to a process that owns sessions, and their answers.

use std::path::PathBuf;
use std::time::Duration;

use allstop_core::ids::QuestionId;
use allstop_core::receipt::ReceiptItem;
use allstop_core::{CallId, Receipt, SessionId, StopId, Timestamp, TurnNumber, Usage};
use allstop_jsonrpc::RpcError;
use serde::{Deserialize, Serialize};

use crate::watch_event::{WatchEvent, WatcherAnswer};

/// Lists the sessions of the process and their work.
pub(crate) const LIST: &str = "allstop.list";
/// Stops work of a session.
pub(crate) const STOP: &str = "allstop.stop";
/// Notification: the stop is accepted, and nothing more of its extent starts.
pub(crate) const ACCEPTED: &str = "allstop.accepted";
/// Watches a session: the answer says what its turn is doing, and notifications follow.
pub(crate) const WATCH: &str = "allstop.watch";
/// Notification: a [`WatchEvent`].
pub(crate) const EVENT: &str = "allstop.event";
/// Answers a permission question.
pub(crate) const ANSWER: &str = "allstop.answer";

/// Code of the error for a session that is not open.
const NOT_OPEN: i64 = -32_001;

/// Error for a session that is not open here.
pub(crate) fn not_open_error(session: &SessionId) -> RpcError {
    RpcError {
        data: Some(session.as_str().into()),
        ..RpcError::new(NOT_OPEN, format!("session {session} is not open here"))
    }
}

/// The session of an error with this code.
pub(crate) fn not_open(error: &RpcError) -> Option<SessionId> {
    let session = error.data.as_ref().filter(|_| error.code == NOT_OPEN);
    session?.as_str().map(SessionId::new)
}

/// A process that owns sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// Its pid, in its own PID namespace.
    pub pid: u32,
    /// The command, such as `chat`.
    pub command: String,
    /// Its working directory.
    pub folder: PathBuf,
    /// File of its store, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<PathBuf>,
    /// Its start.
    pub started_at: Timestamp,
    /// Its open sessions. One that sleeps is left out.
    pub sessions: Vec<OwnedSessionReport>,
}

/// An open session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnedSessionReport {
    /// Its id.
    pub session_id: SessionId,
    /// Name of its model.
    pub model: String,
    /// True if a turn runs or waits.
    pub is_busy: bool,
    /// Milliseconds since its last record, or since it was opened, by the monotonic clock of its process.
    #[serde(default)]
    pub quiet_ms: u64,
    /// Permission questions that wait for an answer, in one line each.
    pub questions: Vec<String>,
    /// True if whoever watches the session may answer them: those of a served task are its client's.
    #[serde(default = "yes")]
    pub takes_answers: bool,
    /// The turn that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<RunningTurnReport>,
    /// All that runs, as a dry run of a stop finds it.
    pub work: Vec<WorkReport>,
}

fn yes() -> bool {
    true
}

/// The turn that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningTurnReport {
    /// Its number.
    pub turn: TurnNumber,
    /// Milliseconds since its start, by the monotonic clock of its process.
    pub age_ms: u64,
    /// Tokens of its calls that have ended.
    pub usage: Usage,
}

/// A piece of work that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkReport {
    /// The work, as the preview of a stop has it.
    #[serde(flatten)]
    pub item: ReceiptItem,
    /// Milliseconds since its start, by the monotonic clock of its process; absent where nobody saw it start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
}

/// Part of a session to stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteExtent {
    /// The running turn; background work goes on.
    Turn,
    /// The turn and all background work, detached work too; the session goes on.
    #[default]
    TurnAndBackground,
    /// All of the session, which is closed.
    Session,
}

/// Request of a stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RemoteStopParams {
    /// The session.
    pub session_id: SessionId,
    /// Part of it to stop.
    pub extent: RemoteExtent,
    /// One call of the running turn, in place of the extent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// True: uses force at once.
    pub now: bool,
    /// True: a dry run.
    pub preview: bool,
    /// Name of the asking program, for the receipt.
    pub by: String,
}

/// Parameters of [`ACCEPTED`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AcceptedParams {
    pub(crate) stop_id: StopId,
}

/// Answer of [`STOP`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StopResult {
    pub(crate) receipt: Receipt,
}

/// Request of a watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WatchParams {
    pub(crate) session_id: SessionId,
}

/// Answer of [`WATCH`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WatchResult {
    /// State of the running turn.
    pub(crate) events: Vec<WatchEvent>,
}

/// Answer to a permission question from another terminal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnswerParams {
    /// The session.
    pub session_id: SessionId,
    /// The question.
    pub question_id: QuestionId,
    /// The answer.
    pub answer: WatcherAnswer,
    /// Name of the asking program, for the terminal of the session.
    pub by: String,
}

/// Answer of [`ANSWER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnswerReport {
    /// True if this answer was the first.
    pub(crate) is_taken: bool,
}

/// Whole milliseconds, for the wire.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
