//! Sessions of a system: each has one owner, behind the handle of `allstop-session`.

use std::fmt;
use std::sync::Arc;

use allstop_agent::TurnError;
use allstop_core::SessionId;
use allstop_core::receipt::ItemKind;
use allstop_core::record::{StartedCall, StartedCallKind};
use allstop_core::turn::SessionState;
use allstop_log::read_session_end;
use allstop_scope::WorkSpec;
use allstop_session::unended::settled_work;
use allstop_session::{
    AgentRequest, AgentSource, OnBackgroundEnd, OpenError, Session, SessionAgent, SessionOptions,
    Sessions,
};
use futures::future::BoxFuture;

use super::spill::SpillFolder;
use super::{System, SystemParts, UnendedWork, open};
use crate::agent_executor::{AgentExecutor, AgentExecutorOptions};
use crate::error::StartError;

/// Recipient of permission questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionRecipient {
    /// Subscribers of the session.
    Subscribers,
    /// The prompter of the system.
    Prompter,
}

/// An open session, with the remains of an earlier process.
#[derive(Debug)]
pub struct OpenSession {
    /// Handle of the session.
    pub session: Session,
    /// Turn that an earlier process left unfinished; it was rolled back.
    pub interrupted: Option<InterruptedTurn>,
    /// Background work of earlier processes that the log did not record as ended.
    pub found: Vec<UnendedWork>,
}

/// A turn that an earlier process left unfinished.
#[derive(Debug)]
pub struct InterruptedTurn {
    /// Beginning of the user's message.
    pub input: Arc<str>,
    /// Tool calls that had started and have no recorded end: they may have completed.
    pub unknown_calls: Vec<StartedCall>,
}

fn interrupted(before: &SessionState) -> Option<InterruptedTurn> {
    let open = before.open_turn()?;
    let is_tool = |call: &&StartedCall| matches!(call.kind, StartedCallKind::Tool { .. });
    let calls = open.open_calls().iter().chain(open.unknown_calls());
    Some(InterruptedTurn {
        input: Arc::clone(&before.turns().last()?.input),
        unknown_calls: calls.filter(is_tool).cloned().collect(),
    })
}

impl System {
    /// Creates a session, with a new id unless one is given. The session never sleeps, since its opener waits for it.
    ///
    /// # Errors
    /// A session with this id already exists, or the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a session without a turn.
    pub async fn new_session(
        &self,
        id: Option<SessionId>,
        recipient: QuestionRecipient,
    ) -> Result<OpenSession, StartError> {
        let folder = self.parts.folder.to_string_lossy();
        Ok(OpenSession {
            session: self.sessions(recipient).create(id, &*folder).await?,
            interrupted: None,
            found: Vec::new(),
        })
    }

    /// Opens an existing session. On return, everything that a crash left unfinished has an end in the log, and the
    /// processes that an earlier process's keepers kill are dead, or one second has passed.
    ///
    /// # Errors
    /// The session does not exist, is open in another process, or cannot be read, or the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the session unchanged or recovered.
    pub async fn resume_session(
        &self,
        id: SessionId,
        recipient: QuestionRecipient,
    ) -> Result<OpenSession, StartError> {
        // Read before the session is opened: afterwards the log no longer shows what was interrupted.
        let (before, owner) = read_session_end(&*self.parts.log, &id).await?;
        let session = self.sessions(recipient).resume(id).await?;
        Ok(OpenSession {
            session,
            interrupted: interrupted(&before).filter(|_| owner.is_none()),
            found: settled_work(&before, self.scope()).await,
        })
    }

    /// An executor of tasks that runs the agents of this system, each context in a session of its own. The sessions
    /// sleep while no turn or background work runs. A permission question that goes to the subscribers becomes a question
    /// of the task to its client.
    pub fn agent_executor(
        &self,
        recipient: QuestionRecipient,
        options: AgentExecutorOptions,
    ) -> AgentExecutor {
        let sessions = SessionOptions {
            // A turn without a message belongs to no task.
            on_background_end: OnBackgroundEnd::Note,
            ..self.parts.config.session.options()
        };
        let sessions = self.sessions_with(recipient, sessions);
        AgentExecutor::new(sessions, self.parts.folder.to_string_lossy(), options)
    }

    fn sessions(&self, recipient: QuestionRecipient) -> Sessions {
        let options = SessionOptions {
            sleep_after: None,
            ..self.parts.config.session.options()
        };
        self.sessions_with(recipient, options)
    }

    fn sessions_with(&self, recipient: QuestionRecipient, options: SessionOptions) -> Sessions {
        let parts = &self.parts;
        let source = Arc::new(SystemAgents {
            parts: Arc::clone(parts),
            recipient,
        });
        let options = SessionOptions {
            now: Arc::clone(&parts.now),
            ..options
        };
        let log = Arc::clone(&parts.log);
        Sessions::new(log, self.scope().clone(), source, options)
    }
}

/// Creates the agents of sessions, with the tools, hooks, guardrails and permissions of the configuration.
struct SystemAgents {
    parts: Arc<SystemParts>,
    recipient: QuestionRecipient,
}

impl fmt::Debug for SystemAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemAgents")
            .field("parts", &self.parts)
            .field("recipient", &self.recipient)
            .finish()
    }
}

impl AgentSource for SystemAgents {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        let (parts, recipient) = (Arc::clone(&self.parts), self.recipient);
        let scope = request.scope.clone();
        // On a dedicated thread: it creates and opens folders, and a disk may hang.
        let spec = WorkSpec::new(ItemKind::Thread, "opening the session's folders");
        let making = scope.spawn_blocking(spec, move |_| make_agent(&parts, recipient, &request));
        Box::pin(async move {
            let making = making.map_err(|refused| open::stopped(&refused))?;
            making.await.map_err(open::bug)?
        })
    }
}

fn make_agent(
    parts: &Arc<SystemParts>,
    recipient: QuestionRecipient,
    request: &AgentRequest,
) -> Result<SessionAgent, TurnError> {
    let folder = parts.spill_folder.join(request.session.as_str());
    let spill = SpillFolder::make(folder, Arc::clone(&parts.cleanup));
    let prompter = match recipient {
        QuestionRecipient::Subscribers => &request.prompter,
        QuestionRecipient::Prompter => &parts.prompter,
    };
    let agent = open::agent(parts, &request.background, &spill, prompter)?;
    Ok(SessionAgent {
        agent,
        resources: Some(Box::new(spill)),
    })
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Session(error) => error.into(),
            OpenError::Stopped(refused) => open::stopped(&refused),
        }
    }
}
