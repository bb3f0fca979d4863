//! Sessions of a system. Each session has one owner: the task that runs its turns and writes its log. Callers reach the
//! owner through a handle, the type `Session`.

use std::fmt;
use std::sync::Arc;

use allstop_agent::TurnError;
use allstop_core::receipt::ItemKind;
use allstop_core::turn::{LostTurn, SessionState, TurnEffects};
use allstop_core::{SessionId, SessionSettings, Timestamp};
use allstop_log::read_session_end;
use allstop_scope::WorkSpec;
use allstop_session::orphan_scan::settled_work;
use allstop_session::{
    AgentRequest, AgentSource, OnBackgroundEnd, OpenError, Session, SessionAgent, SessionOptions,
    Sessions,
};
use futures::future::BoxFuture;

use super::setup::SessionSetup;
use super::spill::SpillFolder;
use super::{OrphanedWork, System, SystemParts, open};
use crate::agent_executor::{AgentExecutor, AgentExecutorOptions};
use crate::error::StartError;
use crate::output_folder::output_folder;
use crate::prompt::{ComposedPrompt, ProjectInstructions};

/// An open session, with the unfinished work of an earlier process.
#[derive(Debug)]
pub struct OpenSession {
    /// Handle of the session.
    pub session: Session,
    /// Turn that an earlier process left unfinished.
    pub interrupted: Option<InterruptedTurn>,
    /// Turns with calls that the conversation does not show. The first turn names these calls to the model.
    pub unreported: Vec<LostTurn>,
    /// Background work of earlier processes without a recorded end.
    pub found: Vec<OrphanedWork>,
    /// The project's instructions in its system prompt.
    pub instructions: ProjectInstructions,
    /// Size of its system prompt in bytes.
    pub prompt_bytes: usize,
}

/// A turn that an earlier process left unfinished.
#[derive(Debug)]
pub struct InterruptedTurn {
    /// Beginning of the user's message.
    pub input: Arc<str>,
    /// True if the user's message and the completed steps are in the conversation. If false, the turn was rolled back.
    pub is_kept: bool,
    /// Calls that may have changed something and that the conversation does not show. If a call had no recorded end, its
    /// outcome is unknown.
    pub effects: TurnEffects,
}

fn interrupted(before: &SessionState) -> Option<InterruptedTurn> {
    before.open_turn()?;
    let lost = before.lost_calls_of_open_turn();
    Some(InterruptedTurn {
        input: Arc::clone(&before.turns().last()?.input),
        is_kept: before.keeps_open_turn(),
        effects: lost.map(|lost| lost.effects).unwrap_or_default(),
    })
}

/// Calls that the first turn reports to the model: those after the records that the open session writes about its earlier
/// processes.
fn unreported(mut state: SessionState, found: &[OrphanedWork]) -> Vec<LostTurn> {
    let gone = found.iter().filter(|work| !work.alive);
    let mut records = state.recovery_records(Timestamp::from_unix_ms(0));
    records.extend(gone.map(OrphanedWork::lost));
    for record in &records {
        if let Err(illegal) = state.apply(record) {
            // Never happens, because the open session writes the same records.
            tracing::warn!(%illegal, "the reported calls may be incomplete");
        }
    }
    state.conversation().reported_by_next_turn()
}

impl System {
    /// Creates a session, with a new id if `id` is `None`. The session never sleeps: it keeps its log open while it is
    /// idle, so that no other process can open a session that a person uses.
    ///
    /// # Errors
    /// Returns an error if a session with this id already exists, the folder cannot be used, or the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a session without a turn.
    pub async fn new_session(
        &self,
        id: Option<SessionId>,
        setup: SessionSetup,
    ) -> Result<OpenSession, StartError> {
        let folder = self.parts.folder_of(&setup).to_string_lossy().into_owned();
        let setup = Arc::new(setup);
        let prompt = self.compose_prompt(&setup).await?;
        let instructions = prompt.instructions.clone();
        let prompt_bytes = prompt.text().map_or(0, |text| text.len());
        Ok(OpenSession {
            session: self.sessions(setup, prompt).create(id, folder).await?,
            interrupted: None,
            unreported: Vec::new(),
            found: Vec::new(),
            instructions,
            prompt_bytes,
        })
    }

    /// Opens an existing session. When this function returns, the log contains an end for all work that a crash left
    /// unfinished. Keepers are the small processes that end the commands of a dead process. If keepers of an earlier
    /// process are still at work, this function waits for them, but at most one second.
    ///
    /// # Errors
    /// Returns an error if the session does not exist, is open in another process, or cannot be read, or if the store
    /// failed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the session unchanged or recovered.
    pub async fn resume_session(
        &self,
        id: SessionId,
        setup: SessionSetup,
    ) -> Result<OpenSession, StartError> {
        // The log is read before the session is opened, because afterwards the log no longer shows the interrupted
        // work.
        let (before, owner) = read_session_end(&*self.parts.log, &id).await?;
        let setup = Arc::new(setup);
        let prompt = self.compose_prompt(&setup).await?;
        let instructions = prompt.instructions.clone();
        let prompt_bytes = prompt.text().map_or(0, |text| text.len());
        let session = self.sessions(setup, prompt).resume(id).await?;
        let mut found = settled_work(&before, self.scope()).await;
        // The open has recorded the processes of calls whose owner and keeper were killed.
        let mut recorded = session.orphaned_work();
        recorded.retain(|work| found.iter().all(|known| known.id != work.id));
        found.append(&mut recorded);
        Ok(OpenSession {
            session,
            interrupted: interrupted(&before).filter(|_| owner.is_none()),
            unreported: unreported(before, &found),
            found,
            instructions,
            prompt_bytes,
        })
    }

    /// Composes the system prompt of a session on a thread in the scope of the system, because a disk may hang.
    ///
    /// # Errors
    /// Returns an error if the system is being stopped.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn compose_prompt(
        &self,
        setup: &Arc<SessionSetup>,
    ) -> Result<ComposedPrompt, StartError> {
        let (parts, setup) = (Arc::clone(&self.parts), Arc::clone(setup));
        let spec = WorkSpec::new(ItemKind::Thread, "reading the project's instructions");
        let composing = self
            .scope()
            .spawn_blocking(spec, move |_| setup_prompt(&parts, &setup))
            .map_err(|refused| open::stopped(&refused))?;
        composing.await.map_err(open::bug)
    }

    /// Creates an executor of tasks that runs the agents of this system, each context in a separate session. The
    /// sessions sleep while no turn or background work runs. A permission question to the subscribers becomes a
    /// question of the task to its client.
    pub fn agent_executor(
        &self,
        setup: SessionSetup,
        options: AgentExecutorOptions,
    ) -> AgentExecutor {
        let sessions = self
            .session_options(&setup)
            // The end of background work is only noted for the next message. The alternative, `Wake`, starts a turn
            // without a message, and such a turn belongs to no task.
            .on_background_end(OnBackgroundEnd::Note);
        let sessions = self.sessions_with(Arc::new(setup), None, sessions);
        AgentExecutor::new(sessions, self.parts.folder.to_string_lossy(), options)
    }

    fn session_options(&self, setup: &SessionSetup) -> SessionOptions {
        let chosen = setup.model.as_ref().map(|model| model.name());
        let configured = self.parts.config.session_options(chosen);
        setup.compaction.apply(configured)
    }

    fn sessions(&self, setup: Arc<SessionSetup>, prompt: ComposedPrompt) -> Sessions {
        let configured = self.session_options(&setup);
        let follow_up = setup.follow_up.unwrap_or(configured.follow_up);
        let options = configured
            .sleep_after(None)
            .follow_up(follow_up)
            .settings(self.settings(&setup));
        self.sessions_with(setup, Some(prompt), options)
    }

    /// Settings that a session with the configured model records. If the caller that opens the session chooses the
    /// model, the session records no settings.
    fn settings(&self, setup: &SessionSetup) -> Option<Arc<SessionSettings>> {
        let parts = &self.parts;
        let model = parts.named_model.as_deref();
        let model = model.filter(|_| setup.model.is_none())?;
        let folder = setup.folder.as_ref().unwrap_or(&parts.folder);
        let folder = folder.to_string_lossy();
        let base_url = parts.config.model.base_url.as_deref();
        Some(Arc::new(SessionSettings::new(
            Some(model),
            base_url,
            &folder,
        )))
    }

    fn sessions_with(
        &self,
        setup: Arc<SessionSetup>,
        prompt: Option<ComposedPrompt>,
        options: SessionOptions,
    ) -> Sessions {
        let parts = &self.parts;
        let source = Arc::new(SystemAgents {
            parts: Arc::clone(parts),
            setup,
            prompt: prompt.map(Arc::new),
        });
        let options = options.now(Arc::clone(&parts.now));
        let log = Arc::clone(&parts.log);
        let sessions = Sessions::new(log, self.scope().clone(), source, options);
        sessions.in_registry(parts.registry.clone())
    }
}

/// Creates the agents of sessions, with the tools, hooks, guardrails and permissions of the configuration or of the
/// setup.
struct SystemAgents {
    parts: Arc<SystemParts>,
    setup: Arc<SessionSetup>,
    /// The prompt, if this value serves only one session. If `None`, each session's prompt is composed when the session
    /// opens.
    prompt: Option<Arc<ComposedPrompt>>,
}

impl fmt::Debug for SystemAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemAgents")
            .field("parts", &self.parts)
            .field("setup", &self.setup)
            .finish_non_exhaustive()
    }
}

impl AgentSource for SystemAgents {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        let (parts, setup) = (Arc::clone(&self.parts), Arc::clone(&self.setup));
        let prompt = self.prompt.clone();
        let scope = request.scope.clone();
        // This work runs on a dedicated thread, because it creates and opens folders, and a disk may hang.
        let spec = WorkSpec::new(ItemKind::Thread, "opening the session's folders");
        let making = scope.spawn_blocking(spec, move |_| {
            let prompt = prompt.unwrap_or_else(|| Arc::new(setup_prompt(&parts, &setup)));
            make_agent(&parts, &setup, &request, &prompt)
        });
        Box::pin(async move {
            let making = making.map_err(|refused| open::stopped(&refused))?;
            making.await.map_err(open::bug)?
        })
    }

    fn model_name(&self) -> Option<&str> {
        let model = self.setup.model.as_ref();
        Some(model.unwrap_or(&self.parts.model).name())
    }
}

fn setup_prompt(parts: &SystemParts, setup: &SessionSetup) -> ComposedPrompt {
    setup.prompt(&parts.config, parts.folder_of(setup), (parts.now)())
}

fn make_agent(
    parts: &Arc<SystemParts>,
    setup: &SessionSetup,
    request: &AgentRequest,
    prompt: &ComposedPrompt,
) -> Result<SessionAgent, TurnError> {
    let folder = output_folder(&parts.spill_folder, &request.session);
    let spill = SpillFolder::make(folder, Arc::clone(&parts.cleanup));
    let agent = open::agent(parts, setup, request, prompt, &spill)?;
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
