//! Requests to a process that owns sessions, and the answers.

use std::path::PathBuf;
use std::time::Duration;

use allstop_core::ids::QuestionId;
use allstop_core::receipt::ReceiptItem;
use allstop_core::{
    CallId, Cause, CauseKind, Receipt, SessionId, StopId, StopReason, TaskId, Timestamp,
    TurnNumber, Usage,
};
use allstop_jsonrpc::RpcError;
use serde::{Deserialize, Serialize};

use crate::watch_event::{WatchEvent, WatcherAnswer};

/// Lists the sessions of the process and their work.
pub(crate) const LIST: &str = "allstop.list";
/// Stops work of a session.
pub(crate) const STOP: &str = "allstop.stop";
/// Notification: the stop is accepted, and no further work starts in the covered part of the session.
pub(crate) const ACCEPTED: &str = "allstop.accepted";
/// Watches a session. The answer contains the state of the running turn, and notifications with later events follow.
pub(crate) const WATCH: &str = "allstop.watch";
/// Notification: a [`WatchEvent`].
pub(crate) const EVENT: &str = "allstop.event";
/// Answers a permission question.
pub(crate) const ANSWER: &str = "allstop.answer";

/// Releases an idle session of a client, so that another process can open it.
pub(crate) const RELEASE: &str = "allstop.release";

/// Error code for a session that is not open.
const NOT_OPEN: i64 = -32_001;

/// Error for a session that is not open in this process.
pub(crate) fn not_open_error(session: &SessionId) -> RpcError {
    RpcError {
        data: Some(session.as_str().into()),
        ..RpcError::new(NOT_OPEN, format!("session {session} is not open here"))
    }
}

/// The session in an error with the code [`NOT_OPEN`].
pub(crate) fn not_open(error: &RpcError) -> Option<SessionId> {
    let session = error.data.as_ref().filter(|_| error.code == NOT_OPEN);
    session?.as_str().map(SessionId::new)
}

/// A process that owns sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// Pid of the process, in its own PID namespace.
    pub pid: u32,
    /// The command of the process, such as `chat`.
    pub command: String,
    /// Working directory of the process.
    pub folder: PathBuf,
    /// File of the process's store, or the URLs of its NATS servers; `None` for another store. The file may not exist yet
    /// if the process is starting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<PathBuf>,
    /// Start of the process.
    pub started_at: Timestamp,
    /// True if the process has not opened its session yet. Only a signal can stop it until then.
    #[serde(default)]
    pub is_starting: bool,
    /// True if the process serves clients, also if no session is open now.
    #[serde(default)]
    pub is_server: bool,
    /// Open sessions of the process. Sleeping sessions are not included, because they have no work.
    pub sessions: Vec<OwnedSessionReport>,
    /// Running commands of the process that belong to no session.
    #[serde(default)]
    pub commands: Vec<OwnedCommandReport>,
}

/// A command that a server runs for a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnedCommandReport {
    /// Id of the command.
    pub command_id: TaskId,
    /// Milliseconds since the start of the command, by the monotonic clock of its process.
    pub age_ms: u64,
    /// The running work, as found by a dry run of a stop.
    pub work: Vec<WorkReport>,
}

/// An open session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnedSessionReport {
    /// Id of the session.
    pub session_id: SessionId,
    /// Name of the session's model.
    pub model: String,
    /// True if a turn runs or waits.
    pub is_busy: bool,
    /// Milliseconds since the session's last record, by the monotonic clock of its process. Without a record,
    /// milliseconds since the session was opened.
    #[serde(default)]
    pub quiet_ms: u64,
    /// Permission questions that wait for an answer, one line each.
    pub questions: Vec<String>,
    /// True if watchers may answer the questions. The questions of a served task can be answered only by the client of
    /// the task.
    #[serde(default = "yes")]
    pub takes_answers: bool,
    /// The running turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<RunningTurnReport>,
    /// All running work, as found by a dry run of a stop of all work.
    pub work: Vec<WorkReport>,
}

fn yes() -> bool {
    true
}

/// The running turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningTurnReport {
    /// Number of the turn.
    pub turn: TurnNumber,
    /// Milliseconds since the start of the turn, by the monotonic clock of its process.
    pub age_ms: u64,
    /// Token usage of the turn's ended model calls and sub-agents.
    pub usage: Usage,
}

/// A running piece of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkReport {
    /// The work, as an item of a stop's receipt. The item comes from a dry run of the stop.
    #[serde(flatten)]
    pub item: ReceiptItem,
    /// Milliseconds since the start of the work, by the monotonic clock of its process; `None` if the process did not
    /// observe the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
}

/// The part of a session that a stop covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteExtent {
    /// The running turn. Background work continues.
    Turn,
    /// The turn and all background work, including detached work, which was left running on purpose. The session
    /// continues.
    #[default]
    TurnAndBackground,
    /// All work of the session, which is then closed.
    Session,
}

/// Parameters of the stop request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RemoteStopParams {
    /// The session, or a command that belongs to no session.
    pub session_id: SessionId,
    /// The part of the session to stop.
    pub extent: RemoteExtent,
    /// Id of one call of the running turn, or of one piece of background work, to stop instead of the extent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// True if the stop uses force (kills processes and drops futures) at once, without a time for the work to end.
    pub now: bool,
    /// True for a dry run, which stops nothing.
    pub preview: bool,
    /// Name of the requesting program, for the receipt.
    pub by: String,
    /// Reason of the user, for the receipt. A process of an older version ignores the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl RemoteStopParams {
    /// Cause of the stop: a user with this reason.
    pub(crate) fn cause(&self) -> Cause {
        let mut cause = Cause::new(CauseKind::User).by(self.by.clone());
        if let Some(reason) = &self.reason {
            cause = cause.detail(reason.clone());
        }
        cause
    }
}

/// Parameters of [`ACCEPTED`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AcceptedParams {
    pub(crate) stop_id: StopId,
}

/// Answer of the stop request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StopResult {
    /// Receipt of the stop.
    pub receipt: Receipt,
    /// Stop reason of the turn that ended last, if the turn had already ended; `None` if the process has run no turn of
    /// the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
}

/// Parameters of [`RELEASE`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReleaseParams {
    pub(crate) session_id: SessionId,
}

/// Answer of [`RELEASE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReleaseResult {}

/// Parameters of [`WATCH`].
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
    /// Name of the answering program, for the terminal of the session.
    pub by: String,
}

/// Answer of [`ANSWER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnswerReport {
    /// True if this answer was the first.
    pub(crate) is_taken: bool,
}

/// Whole milliseconds, as they are sent to another process.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
