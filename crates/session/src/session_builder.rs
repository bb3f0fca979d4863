//! Opens one session of an agent, for a program without a list of sessions.

use std::fmt;
use std::sync::Arc;

use allstop_agent::{Agent, TurnError};
use allstop_core::message::{InvalidHistory, Message, check_history};
use allstop_core::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind, TurnOrigin};
use allstop_core::{CallId, Images, SessionId, TurnNumber, Usage};
use allstop_log::session::stream_of;
use allstop_log::{Log, LogError, MemoryLog, SessionError};
use allstop_tools::Tool;
use futures::future::BoxFuture;

use crate::follow_up::FollowUp;
use crate::session::Session;
use crate::sessions::{OpenError, Sessions};
use crate::source::{AgentRequest, AgentSource, OnBackgroundEnd, SessionAgent, SessionOptions};

/// Sessions of an agent.
pub trait AgentSessions {
    /// Begins a session of this agent: in memory, with a new id.
    fn session(&self) -> SessionBuilder;
}

impl AgentSessions for Agent {
    fn session(&self) -> SessionBuilder {
        SessionBuilder {
            agent: self.clone(),
            id: None,
            store: SessionStore::Memory,
            conversation: Vec::new(),
            tools: None,
            options: SessionOptions::default(),
        }
    }
}

type SessionToolsFn = Arc<dyn Fn(&AgentRequest) -> Vec<Arc<dyn Tool>> + Send + Sync>;

/// Builder of a [`Session`]; see [`AgentSessions::session`].
#[must_use = "call open"]
pub struct SessionBuilder {
    agent: Agent,
    id: Option<SessionId>,
    store: SessionStore,
    conversation: Vec<Message>,
    tools: Option<SessionToolsFn>,
    options: SessionOptions,
}

enum SessionStore {
    Memory,
    #[cfg(feature = "sqlite")]
    File(std::path::PathBuf),
    Log(Arc<dyn Log>),
}

/// Reason why a session was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenSessionError {
    /// The session could not be created or resumed.
    #[error(transparent)]
    Session(#[from] OpenError),
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] LogError),
    /// A tool call of the starting conversation does not have exactly one result.
    #[error("the starting conversation is invalid")]
    Conversation(#[from] InvalidHistory),
    /// The starting conversation does not begin with a message of the user.
    #[error("the starting conversation does not begin with a message of the user")]
    NoUserMessage,
    /// The session exists and has a conversation already.
    #[error("the session exists already, so it takes no starting conversation")]
    HasConversation,
}

impl SessionBuilder {
    /// Sets the id. A stored session with this id is resumed.
    pub fn id(mut self, id: impl Into<SessionId>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Stores the session in the SQLite file `path`, which is created if it does not exist. A committed turn survives
    /// `kill -9` and power loss.
    #[cfg(feature = "sqlite")]
    pub fn persisted(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.store = SessionStore::File(path.into());
        self
    }

    /// Stores the session in a log, which other sessions may share.
    pub fn log(mut self, log: Arc<dyn Log>) -> Self {
        self.store = SessionStore::Log(log);
        self
    }

    /// Sets the conversation before the first turn. It begins with a message of the user.
    pub fn conversation(mut self, messages: impl IntoIterator<Item = Message>) -> Self {
        self.conversation = messages.into_iter().collect();
        self
    }

    /// Sets the policy for a message that arrives while a turn runs.
    pub fn follow_up(mut self, policy: FollowUp) -> Self {
        self.options.follow_up = policy;
        self
    }

    /// Sets the policy for the end of background work.
    pub fn on_background_end(mut self, policy: OnBackgroundEnd) -> Self {
        self.options.on_background_end = policy;
        self
    }

    /// Adds tools that need parts of the session, such as the built-in shell, which needs its background work.
    pub fn tools<F, T>(mut self, tools: F) -> Self
    where
        F: Fn(&AgentRequest) -> T + Send + Sync + 'static,
        T: IntoIterator<Item = Arc<dyn Tool>>,
    {
        self.tools = Some(Arc::new(move |request| {
            tools(request).into_iter().collect()
        }));
        self
    }

    /// Sets all options.
    pub fn options(mut self, options: SessionOptions) -> Self {
        self.options = options;
        self
    }

    /// Opens the session. It runs below the scope of its agent.
    ///
    /// # Errors
    /// If the store or the session cannot be opened, or the starting conversation is not valid.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a stored session without a turn.
    pub async fn open(self) -> Result<Session, OpenSessionError> {
        let records = records_of(self.conversation, &self.options)?;
        let log: Arc<dyn Log> = match self.store {
            SessionStore::Memory => Arc::new(MemoryLog::new()),
            #[cfg(feature = "sqlite")]
            SessionStore::File(path) => Arc::new(allstop_log::SqliteLog::open(path).await?),
            SessionStore::Log(log) => log,
        };
        let scope = self.agent.scope().clone();
        let source: Arc<dyn AgentSource> = Arc::new(SessionSource {
            agent: self.agent,
            tools: self.tools,
        });
        let sessions = Sessions::new(Arc::clone(&log), scope, source, self.options);
        let Some(id) = self.id else {
            return Ok(sessions.create_with(None, folder(), records).await?);
        };
        if !records.is_empty() {
            let stream = stream_of(&id);
            return match sessions.create_with(Some(id), folder(), records).await {
                Err(OpenError::Session(SessionError::Exists(_))) => {
                    // The store releases the lock of the session before it answers this question.
                    let _released = log.lock_owner(&stream).await;
                    Err(OpenSessionError::HasConversation)
                }
                created => Ok(created?),
            };
        }
        match sessions.resume(id.clone()).await {
            Err(OpenError::Session(SessionError::NotFound(_))) => {
                Ok(sessions.create(Some(id), folder()).await?)
            }
            resumed => Ok(resumed?),
        }
    }
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBuilder")
            .field("agent", &self.agent)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The working directory of the process, for lists of sessions.
fn folder() -> String {
    std::env::current_dir().map_or_else(|_| ".".to_owned(), |folder| folder.display().to_string())
}

/// Records of a conversation: one committed turn for each message of the user.
fn records_of(
    messages: Vec<Message>,
    options: &SessionOptions,
) -> Result<Vec<SessionRecord>, OpenSessionError> {
    check_history(&messages)?;
    let at = (options.now)();
    let mut turns: Vec<(Arc<str>, Images, Vec<Arc<Message>>)> = Vec::new();
    for message in messages {
        if let Message::User { text, images } = &message {
            turns.push((Arc::clone(text), images.clone(), Vec::new()));
        }
        let (_, _, of_turn) = turns.last_mut().ok_or(OpenSessionError::NoUserMessage)?;
        of_turn.push(Arc::new(message));
    }
    let numbered = turns.into_iter().zip(1..);
    let records = numbered.flat_map(|((input, images, messages), number)| {
        let turn = TurnNumber(number);
        [
            SessionRecord::TurnStarted {
                turn,
                at,
                input,
                images: images.infos(),
                owner: None,
                message: None,
                origin: TurnOrigin::User,
                reported: Vec::new(),
            },
            // A commit follows an answer of a model. This answer came from elsewhere.
            SessionRecord::CallStarted {
                turn,
                call: StartedCall {
                    id: CallId::from("step_1"),
                    name: "earlier conversation".into(),
                    kind: StartedCallKind::Model { reserved_tokens: 0 },
                },
                at,
            },
            SessionRecord::CallFinished {
                turn,
                id: CallId::from("step_1"),
                outcome: CallOutcome::Succeeded,
                usage: None,
                finish: None,
                exit_code: None,
                result: None,
            },
            SessionRecord::TurnCommitted {
                turn,
                at,
                messages,
                usage: Usage::default(),
            },
        ]
    });
    Ok(records.collect())
}

/// An agent, with tools for each of its sessions.
struct SessionSource {
    agent: Agent,
    tools: Option<SessionToolsFn>,
}

impl fmt::Debug for SessionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.agent.fmt(f)
    }
}

impl AgentSource for SessionSource {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        let more = self.tools.as_ref().map(|tools| tools(&request));
        let agent = self.agent.with_tools(more.unwrap_or_default());
        let opened = agent.map(|agent| SessionAgent {
            agent,
            resources: None,
        });
        Box::pin(std::future::ready(
            opened.map_err(|error| TurnError::bug(error.to_string())),
        ))
    }
}
