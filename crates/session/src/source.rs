//! Where the agents of sessions come from, and how sessions run.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use allstop_agent::{Agent, Background, TurnError};
use allstop_core::{MessageId, SessionId, Timestamp};
use allstop_scope::Scope;
use allstop_tools::external::LateAnswer;
use allstop_tools::{Answer, Prompter};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compaction::Compaction;
use crate::follow_up::FollowUp;

/// Makes the agent of a session, each time when the session is opened.
pub trait AgentSource: Send + Sync + fmt::Debug {
    /// The agent.
    ///
    /// # Errors
    /// The message that opened the session fails with it.
    ///
    /// # Cancel safety
    /// It is dropped where a stop of the session is first.
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>>;
}

/// Parts of a session that its agent is made with.
pub struct AgentRequest {
    /// The session.
    pub session: SessionId,
    /// The session's scope, for work that blocks a thread while the agent is made.
    pub scope: Scope,
    /// The session's background work, for tools that start some.
    pub background: Arc<Background>,
    /// Asks the session's subscribers. An agent whose permissions go elsewhere leaves it.
    pub prompter: Arc<dyn Prompter>,
    /// Shows subscribers an answer of an external tool that came too late: for
    /// [`ExternalOptions`](allstop_tools::external::ExternalOptions).
    pub on_late_answer: Arc<dyn Fn(LateAnswer) + Send + Sync>,
}

impl fmt::Debug for AgentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentRequest")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// The agent of one session.
pub struct SessionAgent {
    /// The agent.
    pub agent: Agent,
    /// A value that lives as long as the session is open: a folder that is removed with it.
    pub kept: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for SessionAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionAgent")
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}

/// One agent for all sessions: for programs whose tools know no session.
impl AgentSource for Agent {
    fn agent(&self, _request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        let agent = SessionAgent {
            agent: self.clone(),
            kept: None,
        };
        Box::pin(std::future::ready(Ok(agent)))
    }
}

/// Policy for the end of attached background work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBackgroundEnd {
    /// The model is told with the next message.
    #[default]
    Note,
    /// The model is told at once, in a turn of its own.
    Wake,
}

/// Options of sessions.
#[derive(Clone)]
pub struct SessionOptions {
    /// Policy for a message that arrives while a turn runs.
    pub follow_up: FollowUp,
    /// Policy for the end of attached background work.
    pub on_background_end: OnBackgroundEnd,
    /// At most so many messages wait. What a person has typed ahead is far less; what a program sends is to be told.
    pub waiting_max: usize,
    /// Idle time after which the session sleeps: it holds its id and policy and nothing else, no lock either,
    /// and the next message opens it again. A session with background work does not sleep. `None`: it never does.
    pub sleep_after: Option<Duration>,
    /// When old messages are replaced by a summary; `None`: only when asked.
    pub compaction: Option<Compaction>,
    /// Time that the hooks of the session itself have together: they must not hold up the next message.
    pub hooks_max: Duration,
    /// The answer to permission questions while nobody subscribes to the session.
    pub unwatched: Answer,
    /// Time that a question stays open when the last subscriber has left: long enough to come back after a lost
    /// connection, and short enough that nobody finds a turn the next day that did nothing. Then it is denied as
    /// [`Answer::Unanswered`]. `None`: it stays open until it is answered or stopped.
    pub unanswered_after: Option<Duration>,
    /// Wall-clock time for records.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Makes message ids.
    pub new_message_id: Arc<dyn Fn() -> MessageId + Send + Sync>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            follow_up: FollowUp::default(),
            on_background_end: OnBackgroundEnd::default(),
            waiting_max: 64,
            sleep_after: Some(Duration::from_mins(1)),
            compaction: None,
            hooks_max: Duration::from_secs(5),
            unwatched: Answer::Unanswered,
            unanswered_after: Some(Duration::from_mins(1)),
            now: Arc::new(|| SystemTime::now().into()),
            new_message_id: Arc::new(|| MessageId::new(ulid::Ulid::generate().to_string())),
        }
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("follow_up", &self.follow_up)
            .field("on_background_end", &self.on_background_end)
            .field("waiting_max", &self.waiting_max)
            .field("sleep_after", &self.sleep_after)
            .field("compaction", &self.compaction)
            .finish_non_exhaustive()
    }
}
