//! Parts of the embedding program that sessions use: the source of their agents, and their options.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use allstop_agent::{Agent, SessionBackground, TurnError};
use allstop_core::{MessageId, SessionId, SessionSettings, Timestamp};
use allstop_log::Log;
use allstop_scope::Scope;
use allstop_tools::external::LateAnswer;
use allstop_tools::{PermissionAnswer, Prompter};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compaction::CompactionLimits;
use crate::follow_up::FollowUp;

/// Source of agents. Creates the agent of a session each time the session is opened.
pub trait AgentSource: Send + Sync + fmt::Debug {
    /// Creates the agent.
    ///
    /// # Errors
    /// An error fails the message that opened the session.
    ///
    /// # Cancel safety
    /// The future is dropped if a stop of the session comes first.
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>>;

    /// Display name of the agents' model; `None` if unknown.
    fn model_name(&self) -> Option<&str> {
        None
    }
}

/// Parts of a session for the creation of its agent.
#[non_exhaustive]
pub struct AgentRequest {
    /// Id of the session.
    pub session: SessionId,
    /// Scope of the session, for work that blocks a thread during the creation.
    pub scope: Scope,
    /// Background work of the session, for tools that start background work.
    pub background: Arc<SessionBackground>,
    /// Prompter that sends permission questions to the session's subscribers. The agent need not use it.
    pub prompter: Arc<dyn Prompter>,
    /// Callback for an answer of an external tool that arrives too late; it notifies subscribers. Used for
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
    /// A value that is kept while the session is open, such as a temporary folder.
    pub resources: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for SessionAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionAgent")
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}

/// One agent for all sessions, for programs with tools that do not depend on the session.
impl AgentSource for Agent {
    fn agent(&self, _request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        let agent = SessionAgent {
            agent: self.clone(),
            resources: None,
        };
        Box::pin(std::future::ready(Ok(agent)))
    }
}

/// Policy for the end of attached background work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBackgroundEnd {
    /// The model receives a note with the next message.
    #[default]
    Note,
    /// The model receives a note at once, in a separate turn.
    Wake,
}

/// Options of sessions.
#[derive(Clone)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Policy for a message that arrives while a turn runs.
    pub follow_up: FollowUp,
    /// Policy for the end of attached background work.
    pub on_background_end: OnBackgroundEnd,
    /// Maximum number of waiting messages. A person types far fewer messages in advance; a program that sends more
    /// messages receives an error.
    pub waiting_max: usize,
    /// Idle time after which the session sleeps; `None` if it never sleeps. A sleeping session keeps only its id and
    /// policy, and no lock; the next message opens it again. A session with background work does not sleep.
    pub sleep_after: Option<Duration>,
    /// Limits for automatic compaction; `None` if the session compacts only on request.
    pub compaction: Option<CompactionLimits>,
    /// Time limit for all hooks of the session itself together, because the hooks must not delay the next message.
    pub hooks_max: Duration,
    /// Answer to permission questions while the session has no subscriber.
    pub unwatched: PermissionAnswer,
    /// Maximum time that a permission question stays open after the last subscriber has left. Then the call is denied
    /// with the answer [`PermissionAnswer::Unanswered`]. The time should be long enough for a client to return after a
    /// lost connection, and short enough that a turn does not wait overnight without result. `None` if a question stays
    /// open until it is answered or stopped.
    pub unanswered_after: Option<Duration>,
    /// Settings that a session records when it is created or resumed, for the process that continues the session later.
    pub settings: Option<Arc<SessionSettings>>,
    /// Wall clock for the times in records.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Creates message ids.
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
            unwatched: PermissionAnswer::Unanswered,
            unanswered_after: Some(Duration::from_mins(1)),
            settings: None,
            now: Arc::new(|| SystemTime::now().into()),
            new_message_id: Arc::new(|| MessageId::new(ulid::Ulid::generate().to_string())),
        }
    }
}

impl SessionOptions {
    /// Sets the policy for a message that arrives while a turn runs.
    #[must_use]
    pub fn follow_up(mut self, follow_up: FollowUp) -> Self {
        self.follow_up = follow_up;
        self
    }

    /// Sets the policy for the end of attached background work.
    #[must_use]
    pub fn on_background_end(mut self, on_background_end: OnBackgroundEnd) -> Self {
        self.on_background_end = on_background_end;
        self
    }

    /// Sets the maximum number of waiting messages.
    #[must_use]
    pub fn waiting_max(mut self, waiting_max: usize) -> Self {
        self.waiting_max = waiting_max;
        self
    }

    /// Sets the idle time after which the session sleeps.
    #[must_use]
    pub fn sleep_after(mut self, sleep_after: impl Into<Option<Duration>>) -> Self {
        self.sleep_after = sleep_after.into();
        self
    }

    /// Sets the limits for automatic compaction.
    #[must_use]
    pub fn compaction(mut self, compaction: impl Into<Option<CompactionLimits>>) -> Self {
        self.compaction = compaction.into();
        self
    }

    /// Sets the maximum time that a permission question stays open after the last subscriber has left.
    #[must_use]
    pub fn unanswered_after(mut self, unanswered_after: impl Into<Option<Duration>>) -> Self {
        self.unanswered_after = unanswered_after.into();
        self
    }

    /// Sets the settings that a session records for the process that continues it later.
    #[must_use]
    pub fn settings(mut self, settings: impl Into<Option<Arc<SessionSettings>>>) -> Self {
        self.settings = settings.into();
        self
    }

    /// Sets the wall clock for the times in records.
    #[must_use]
    pub fn now(mut self, now: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        self.now = now;
        self
    }

    /// Sets the function that creates message ids.
    #[must_use]
    pub fn new_message_id(
        mut self,
        new_message_id: Arc<dyn Fn() -> MessageId + Send + Sync>,
    ) -> Self {
        self.new_message_id = new_message_id;
        self
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

/// Parts of the system that sessions need.
#[derive(Debug)]
pub(crate) struct SessionHost {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) scope: Scope,
    pub(crate) source: Arc<dyn AgentSource>,
    pub(crate) options: SessionOptions,
}
