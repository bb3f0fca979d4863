//! One event of a session.

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::ids::{BackgroundId, QuestionId};
use allstop_core::record::{Attachment, BackgroundKind, SessionRecord};
use allstop_core::{CallId, MessageId, TurnNumber};
use allstop_log::Version;
use allstop_tools::{BackgroundWork, PermissionAnswer, PermissionQuestion, ServerQuestion};
use serde::{Deserialize, Serialize};

use crate::orphan_scan::OrphanedWork;

/// One event of a session.
#[derive(Debug, Clone)]
pub struct SessionEvent {
    /// Turn of the event.
    pub turn: Option<TurnNumber>,
    /// Message that caused the event.
    pub message: Option<MessageId>,
    /// Kind of event.
    pub kind: SessionEventKind,
}

impl SessionEvent {
    pub(super) fn missed(count: u64) -> Self {
        Self {
            turn: None,
            message: None,
            kind: SessionEventKind::Missed { count },
        }
    }
}

/// Kind of event.
#[derive(Debug, Clone)]
pub enum SessionEventKind {
    /// A record is durable: start or end of a turn or call, a receipt, background work.
    Recorded {
        /// Number of the record in the session's log.
        version: Version,
        /// The record.
        record: Arc<SessionRecord>,
    },
    /// A live event for display: parts of the answer (deltas), requested tools and their output.
    Live(AgentEvent),
    /// Permission for a call is requested. Only the first answer counts.
    PermissionAsked(OpenQuestion),
    /// The permission question is closed: a subscriber answered it, a stop removed it, or no subscriber was left to
    /// answer it.
    PermissionAnswered {
        /// Id of the question.
        id: QuestionId,
        /// The answer; `None` if a stop came first.
        answer: Option<PermissionAnswer>,
    },
    /// The server of a tool asks a question. Only the first answer counts.
    ServerAsked(Box<OpenServerQuestion>),
    /// The question of a server is closed: it was answered, a stop removed it, or no client was left to answer it.
    ServerQuestionClosed {
        /// Id of the question.
        id: QuestionId,
    },
    /// A tool answered a call that had already ended. The answer is discarded.
    LateAnswer {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: Arc<str>,
    },
    /// Background work has started, ended or been detached.
    BackgroundChanged {
        /// Running work.
        running: Vec<BackgroundItem>,
    },
    /// The turn has ended.
    AssistantIdle {
        /// True if the turn was stopped.
        stopped: bool,
        /// Background work that still runs.
        running: Vec<BackgroundItem>,
    },
    /// No turn runs or waits, and no attached background work runs.
    SessionIdle {
        /// True if the last turn was stopped.
        stopped: bool,
        /// Detached work that still runs.
        detached: Vec<BackgroundItem>,
    },
    /// The subscriber was too slow and missed live events before this one. All durable events still follow.
    Missed {
        /// Number of missed events.
        count: u64,
    },
}

/// A piece of running background work, for a display of one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundItem {
    /// Id of the work.
    pub id: BackgroundId,
    /// The command, or the prompt of a sub-agent.
    pub name: Arc<str>,
    /// Kind of the work.
    pub kind: BackgroundKind,
    /// Attachment of the work. Attached work delays the event `session_idle`.
    pub attachment: Attachment,
}

impl BackgroundItem {
    pub(crate) fn of(work: &BackgroundWork) -> Self {
        Self {
            id: work.id.clone(),
            name: Arc::clone(&work.name),
            kind: work.kind(),
            attachment: work.attachment(),
        }
    }

    pub(crate) fn orphan(work: &OrphanedWork) -> Self {
        Self {
            id: work.id.clone(),
            name: Arc::clone(&work.name),
            kind: work.kind,
            attachment: Attachment::Detached,
        }
    }
}

/// A permission question without an answer. The turn that asked waits for the answer, and a new subscriber receives the
/// question first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenQuestion {
    /// Id of the question.
    pub id: QuestionId,
    /// Path of `agent` calls that leads to the sub-agent with the question; empty if the session's own agent asks.
    pub agents: Vec<CallId>,
    /// The question.
    pub question: PermissionQuestion,
}

/// A question of a server without an answer. The call waits for the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenServerQuestion {
    /// Id of the question.
    pub id: QuestionId,
    /// Path of `agent` calls that leads to the sub-agent with the call; empty if the session's own agent has called.
    pub agents: Vec<CallId>,
    /// The question.
    pub question: ServerQuestion,
}
