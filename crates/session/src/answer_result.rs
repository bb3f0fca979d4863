//! Parts that the questions of permissions and of servers share.

use allstop_core::{CallId, SessionId};

/// Result of answering a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an answer may come too late"]
pub enum AnswerResult {
    /// The answer was accepted.
    Taken,
    /// Another answer came first, or a stop removed the question.
    TooLate,
    /// No question has ever had this id.
    NotFound,
}

/// Path of `agent` calls that leads to the sub-agent with the question. The session id of a sub-agent consists of its
/// parent's id and the call.
pub(crate) fn agents_of(session: &SessionId, asks: &SessionId) -> Vec<CallId> {
    let below = asks.as_str().strip_prefix(session.as_str());
    let path = below.and_then(|below| below.strip_prefix('/'));
    let calls = path.into_iter().flat_map(|path| path.split('/'));
    calls.map(CallId::new).collect()
}
