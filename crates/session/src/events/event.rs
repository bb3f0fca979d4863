//! One event of a session.

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::ids::{BackgroundId, QuestionId};
use allstop_core::record::{Attachment, BackgroundKind, SessionRecord};
use allstop_core::{CallId, MessageId, TurnNumber};
use allstop_log::Version;
use allstop_tools::{BackgroundWork, Question};

use crate::found::FoundWork;

/// One event of a session.
#[derive(Debug, Clone)]
pub struct SessionEvent {
    /// The turn that it belongs to.
    pub turn: Option<TurnNumber>,
    /// The message that caused it.
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
    /// A record is durable: turns and calls that start and end, receipts, background work.
    Recorded {
        /// Its number in the session's log.
        version: Version,
        /// The record.
        record: Arc<SessionRecord>,
    },
    /// For eyes: deltas, tools asked for and their output.
    Live(AgentEvent),
    /// Somebody is asked whether a call may run. Whoever answers first decides.
    PermissionAsked(OpenQuestion),
    /// The question is no more: it was answered, a stop took it away, or nobody was left who could answer.
    PermissionAnswered {
        /// Which.
        id: QuestionId,
        /// Whether the call may run.
        allowed: bool,
    },
    /// A tool answered a call that had ended before. Nothing of the answer is used.
    LateAnswer {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: Arc<str>,
    },
    /// Background work has started, ended or been let go.
    BackgroundChanged {
        /// The work that runs now.
        running: Vec<BackgroundItem>,
    },
    /// The turn has its ending.
    AssistantIdle {
        /// Whether it was stopped.
        stopped: bool,
        /// Background work that still runs.
        running: Vec<BackgroundItem>,
    },
    /// No turn runs or waits, and nothing attached runs in the background.
    SessionIdle {
        /// Whether the last turn was stopped.
        stopped: bool,
        /// Detached work that still runs.
        detached: Vec<BackgroundItem>,
    },
    /// The subscriber was too slow: so many events before this one are lost to it. Durable ones follow all the same.
    Missed {
        /// Number of events.
        count: u64,
    },
}

/// Background work that runs, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundItem {
    /// Its id.
    pub id: BackgroundId,
    /// The command, or what a sub-agent was asked.
    pub name: Arc<str>,
    /// Its kind.
    pub kind: BackgroundKind,
    /// Whether idle waits for it.
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

    pub(crate) fn left(work: &FoundWork) -> Self {
        Self {
            id: work.id.clone(),
            name: Arc::clone(&work.name),
            kind: work.kind,
            attachment: Attachment::Detached,
        }
    }
}

/// A question that waits for its answer. While it does, its turn waits, and a new subscriber is asked first of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenQuestion {
    /// Its id.
    pub id: QuestionId,
    /// The calls of `agent` on the way to the sub-agent that asks; empty: the session's own agent does.
    pub agents: Vec<CallId>,
    /// The question.
    pub question: Question,
}
