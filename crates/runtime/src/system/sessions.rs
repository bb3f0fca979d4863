//! Sessions that people talk with: made of the same parts as [`OpenSession`](super::OpenSession), behind the handle of
//! `allstop-session`.

use std::fmt;
use std::sync::Arc;

use allstop_agent::TurnError;
use allstop_core::SessionId;
use allstop_core::record::{StartedCall, StartedCallKind};
use allstop_core::turn::SessionState;
use allstop_log::read_session;
use allstop_session::{
    AgentRequest, AgentSource, OpenError, Session, SessionAgent, SessionOptions, Sessions,
};

use super::session::SpillFolder;
use super::{FoundWork, Parts, System, found_work, open};
use crate::error::StartError;

/// Who is asked whether a call may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// Whoever subscribes to the session.
    Subscribers,
    /// The prompter of the system.
    Prompter,
}

/// A session that is talked with, and what an earlier process left of it.
#[derive(Debug)]
pub struct TalkedSession {
    /// Its handle.
    pub session: Session,
    /// The turn that an earlier process left without an ending: it was rolled back.
    pub interrupted: Option<InterruptedTurn>,
    /// Background work of earlier processes whose end the log did not know.
    pub found: Vec<FoundWork>,
}

/// A turn that an earlier process left without an ending.
#[derive(Debug)]
pub struct InterruptedTurn {
    /// The beginning of the user's words.
    pub input: Arc<str>,
    /// Tool calls that had started and of whose end nothing is known: they may have completed.
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
    /// A session behind a handle: a new one, or the one with this id. It never sleeps, so that nobody else takes it
    /// over while somebody sits before it.
    ///
    /// # Errors
    /// There is none, another process has it open, it cannot be read, or the store failed.
    ///
    /// # Cancel safety
    /// Dropping it leaves a session without a turn, or the session as it was, or recovered.
    pub async fn session(
        &self,
        id: Option<SessionId>,
        asks: Asks,
    ) -> Result<TalkedSession, StartError> {
        let parts = &self.parts;
        let source = Arc::new(SystemAgents {
            parts: Arc::clone(parts),
            asks,
        });
        let options = SessionOptions {
            sleep_after: None,
            now: Arc::clone(&parts.now),
            ..parts.config.session.options()
        };
        let sessions = Sessions::new(
            Arc::clone(&parts.log),
            self.scope().clone(),
            source,
            options,
        );
        let Some(id) = id else {
            let folder = parts.folder.to_string_lossy();
            return Ok(TalkedSession {
                session: sessions.create(None, &*folder).await?,
                interrupted: None,
                found: Vec::new(),
            });
        };
        // Before it is opened: afterwards the log tells of it as of any other past.
        let (before, owner) = read_session(&*parts.log, &id).await?;
        let session = sessions.resume(id).await?;
        Ok(TalkedSession {
            session,
            interrupted: interrupted(&before).filter(|_| owner.is_none()),
            found: found_work(&before),
        })
    }
}

/// Makes the agents of sessions: tools, hooks, guardrails and permissions as the configuration says.
struct SystemAgents {
    parts: Arc<Parts>,
    asks: Asks,
}

impl fmt::Debug for SystemAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemAgents")
            .field("parts", &self.parts)
            .field("asks", &self.asks)
            .finish()
    }
}

impl AgentSource for SystemAgents {
    fn agent(&self, request: AgentRequest) -> Result<SessionAgent, TurnError> {
        let spill = SpillFolder::make(self.parts.spill_folder.join(request.session.as_str()));
        let prompter = match self.asks {
            Asks::Subscribers => &request.prompter,
            Asks::Prompter => &self.parts.prompter,
        };
        let agent = open::agent(&self.parts, &request.background, &spill, prompter)?;
        Ok(SessionAgent {
            agent,
            kept: Some(Box::new(spill)),
        })
    }
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Session(error) => error.into(),
            OpenError::Stopped(refused) => open::stopped(&refused),
        }
    }
}
