//! The opening of a session, with the parts that its client has chosen.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use allstop_agent::Hook;
use allstop_core::receipt::ItemKind;
use allstop_core::turn::{CallTexts, StopPolicy};
use allstop_core::{Cause, CauseKind, SessionId, TurnNumber};
use allstop_log::read_session_end;
use allstop_runtime::{
    Definitions, OpenSession, QuestionRecipient, SessionSetup, StartError, StartErrorKind, System,
    SystemPrompt,
};
use allstop_scope::{ScopeOptions, WorkSpec};
use allstop_session::FollowUp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::auto_model::SwitchRequests;
use super::client_tools::{ChosenTools, ClientTools, ToolGeneration};
use super::declined_questions::DeclinedQuestions;
use super::exit_plan::PlanExit;
use super::hooks::{ClientHooks, HookRequests};
use super::program_files::ProgramFiles;
use super::session_files::{FolderFiles, SessionFileStore};
use super::session_models::SessionModels;
use super::session_plugins::add_plugins;
use super::{
    ClientCommandQueue, ClientFacts, FixedSettings, HostedSession, ProgramTokens, SessionChoice,
    SessionServers, StartOrder, UnansweredRequests, WorkspaceState, now,
};
use crate::client_parts::ClientAgent;
use crate::server::CopilotServer;

/// Maximum number of unread host events ([`HostEvent`](crate::translate::HostEvent)) in a client's feed. This is far more
/// than the number of concurrent calls. If a feed misses events, it sends all unanswered tool requests again.
const HOST_EVENTS_MAX: usize = 1_024;

/// Folder of the workspace, in the folder of the session.
const WORKSPACE: &str = "workspace";

/// Returns the working directory that the client has chosen, or that a resumed session has had.
async fn folder_of(
    system: &System,
    id: &SessionId,
    mode: OpenMode,
    choice: &SessionChoice,
) -> Result<Option<PathBuf>, StartError> {
    match (&choice.folder, mode) {
        (None, OpenMode::Resume) => recorded_folder(system, id).await,
        (folder, _) => Ok(folder.clone()),
    }
}

/// Returns the working directory in which the session was created.
async fn recorded_folder(system: &System, id: &SessionId) -> Result<Option<PathBuf>, StartError> {
    let (state, _owner) = read_session_end(&**system.log(), id).await?;
    Ok(state.folder().map(|folder| PathBuf::from(&**folder)))
}

/// Reads the name, the mode and the workspace of a session.
async fn session_state(server: &CopilotServer, id: &SessionId) -> WorkspaceState {
    let system = server.system();
    let folder = system.session_folder(id).join(WORKSPACE);
    let scope = server.connections().clone();
    WorkspaceState::read(folder, system.config().permissions.mode, scope).await
}

/// Reads the skills and the agents of a session from files.
async fn read_definitions(
    server: &CopilotServer,
    choice: &SessionChoice,
    folder: &Path,
) -> Result<Definitions, StartError> {
    let (parts, folder) = (choice.parts.clone(), folder.to_owned());
    let spec = WorkSpec::new(ItemKind::Thread, "reading definitions");
    let reading = server
        .connections()
        .spawn_blocking(spec, move |_| parts.read_definitions(&folder));
    let reading = reading.map_err(|refused| StartError::stopped(&refused))?;
    // A panic of the reader is a bug, and the session then has no definitions.
    Ok(reading.await.unwrap_or_default())
}

/// Returns the choice with the agents of the working directory.
///
/// # Errors
/// Returns an error if the selected agent is unknown.
fn with_found_agents(
    choice: &SessionChoice,
    found: &Definitions,
) -> Result<SessionChoice, StartError> {
    let mut choice = choice.clone();
    let problems = found.problems.iter();
    choice
        .not_offered
        .extend(problems.map(|problem| problem.as_str().into()));
    let agents = found.agents.values().cloned();
    choice.parts.found_agents = agents.map(ClientAgent::of_file).collect();
    if let Some(name) = &choice.parts.agent
        && choice.parts.selected().is_none()
    {
        let message = format!("the agent {name:?} is neither among `customAgents` nor in a file");
        return Err(StartError {
            kind: StartErrorKind::Config,
            message,
            hint: None,
        });
    }
    Ok(choice)
}

/// Returns the settings that the session has while it is open.
fn settings_of(choice: &SessionChoice, folder: &Path) -> FixedSettings {
    FixedSettings {
        model: choice.model_name.clone(),
        provider: choice.requested.provider,
        system_message: Some(choice.requested.system_message.clone().unwrap_or_default()),
        available_tools: choice.filter.available.clone(),
        excluded_tools: Some(choice.filter.excluded.clone()),
        working_directory: Some(folder.to_owned()),
        instruction_directories: choice.requested.instruction_directories.clone(),
        further: choice.requested.further.clone(),
    }
}

/// Returns the facts that the clients know. A session that is opened again keeps them.
fn facts_of(before: Option<&HostedSession>, state: &WorkspaceState) -> Arc<ClientFacts> {
    before.map_or_else(
        || Arc::new(ClientFacts::with_notes(state.model_changes())),
        |before| Arc::clone(&before.facts),
    )
}

/// Returns the hooks of the session: the filter of secret values, those of the clients, and the start of the plugins'
/// servers.
fn hooks_of(
    server: &CopilotServer,
    tools: &Arc<ClientTools>,
    requests: &HookRequests,
    servers: Option<&SessionServers>,
) -> Vec<Arc<dyn Hook>> {
    let of_clients = ClientHooks {
        name: "copilot-client".into(),
        tools: Arc::clone(tools),
        requests: requests.clone(),
        store_file: server.system().store_file(),
    };
    let mut hooks: Vec<Arc<dyn Hook>> = vec![server.secrets().clone(), Arc::new(of_clients)];
    if let Some(servers) = servers.and_then(SessionServers::of_plugins) {
        hooks.push(Arc::new(Arc::clone(servers).hook()));
    }
    hooks
}

/// Returns the files of a session, which the program stores if it has a provider.
fn files_of(
    choice: &SessionChoice,
    id: &SessionId,
    state: &WorkspaceState,
) -> Arc<dyn SessionFileStore> {
    match choice.client.files_folder() {
        Some(folder) => Arc::new(ProgramFiles {
            client: Arc::clone(&choice.client),
            session: id.clone(),
            folder,
        }),
        None => Arc::new(FolderFiles::new(state.folder().to_owned())),
    }
}

/// Returns the tools of the session: the chosen built-in tools, and the tools of the clients and of the MCP servers.
fn chosen_tools(
    choice: &SessionChoice,
    clients: &Arc<ClientTools>,
    (state, files): (&Arc<WorkspaceState>, &Arc<dyn SessionFileStore>),
    requests: HookRequests,
) -> ChosenTools {
    let plan_exit = choice.client_options.plan_exit.then(|| PlanExit {
        attached_clients: Arc::clone(&requests.attached_clients),
        state: Arc::clone(state),
        files: Arc::clone(files),
        host_events: requests.host_events.clone(),
    });
    ChosenTools {
        clients: Arc::clone(clients),
        requests,
        plan_exit,
    }
}

/// Wording of the official runtime about calls without a result. Programs and prompts refer to these words.
fn call_texts() -> CallTexts {
    CallTexts {
        denied: "The user rejected this tool call.".into(),
        unanswered: "Permission denied and could not request permission from user".into(),
        stopped: "The execution of this tool, or a previous tool was interrupted.".into(),
    }
}

/// Composes the prompt of a session whose client changes sections of the prompt.
async fn with_sections(
    system: &System,
    id: &SessionId,
    setup: SessionSetup,
    choice: &mut SessionChoice,
) -> Result<SessionSetup, StartError> {
    let requested = choice.requested.system_message.as_ref();
    let Some(requested) = requested.filter(|requested| !requested.sections.is_empty()) else {
        return Ok(setup);
    };
    let setup = Arc::new(setup);
    let mut prompt = system.compose_prompt(&setup).await?;
    let sections = &requested.sections;
    let changed = sections.change(&mut prompt, id, &choice.client).await;
    if let Err(error) = changed {
        let message = format!("the system message is not transformed: {error}");
        choice.not_offered.push(message.into());
    }
    let setup = Arc::unwrap_or_clone(setup);
    Ok(setup.system_prompt(SystemPrompt::Composed(Arc::new(prompt))))
}

/// Creates or resumes a session with this setup. If this fails, ends the servers of the session.
async fn open_session(
    system: &System,
    id: SessionId,
    mode: OpenMode,
    (setup, servers): (SessionSetup, Option<&SessionServers>),
    choice: &mut SessionChoice,
) -> Result<OpenSession, StartError> {
    let opening = async {
        let setup = with_sections(system, &id, setup, choice).await?;
        match mode {
            OpenMode::Create => system.new_session(Some(id), setup).await,
            OpenMode::Resume => system.resume_session(id, setup).await,
        }
    };
    let opened = opening.await;
    if let (Err(_), Some(servers)) = (&opened, servers) {
        servers.close().await;
    }
    opened
}

/// Mode in which a session is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    Create,
    Resume,
}

impl HostedSession {
    /// Opens a session.
    ///
    /// # Errors
    /// Returns the errors of [`System::new_session`] and [`System::resume_session`].
    pub(crate) async fn open(
        server: &CopilotServer,
        id: SessionId,
        mode: OpenMode,
        choice: &SessionChoice,
        before: Option<&Self>,
    ) -> Result<Arc<Self>, StartError> {
        let system: &System = server.system();
        let folder = folder_of(system, &id, mode, choice).await?;
        let used_folder = folder.clone().unwrap_or_else(|| system.folder().to_owned());
        let mut choice = choice.clone();
        add_plugins(server, &mut choice).await?;
        let skills = read_definitions(server, &choice, &used_folder).await?;
        let mut choice = with_found_agents(&choice, &skills)?;
        let (models, model) = SessionModels::of(
            system,
            server.options().auto_model.as_deref(),
            &mut choice,
            before.map(|before| &before.models),
        )?;
        let attached_clients = choice.providers.route.bind(&id);
        let tools = ClientTools::new(
            choice.filter_of_agent(),
            Arc::clone(&attached_clients),
            choice.client_options.user_input,
        );
        let tools = Arc::new(tools);
        let generation = tools.declare(choice.declared.clone().unwrap_or_default());
        let state = match before {
            Some(before) => Arc::clone(&before.state),
            None => Arc::new(session_state(server, &id).await),
        };
        let files = files_of(&choice, &id, &state);
        let host_events = broadcast::channel(HOST_EVENTS_MAX).0;
        let mcp_tokens = ProgramTokens::new(&choice, &attached_clients, &host_events);
        let servers =
            SessionServers::start(server, &id, &choice, &used_folder, &mcp_tokens).await?;
        let settings = settings_of(&choice, &used_folder);
        let requests = HookRequests {
            session_id: id.clone(),
            attached_clients: Arc::clone(&attached_clients),
            folder: used_folder,
            host_events: host_events.clone(),
        };
        let hooks = hooks_of(server, &tools, &requests, servers.as_ref());
        let chosen_tools = chosen_tools(&choice, &tools, (&state, &files), requests);
        let setup = SessionSetup::default()
            .recipient(QuestionRecipient::Subscribers)
            .model(model)
            .folder(folder)
            .system_prompt(choice.prompt_of_agent())
            .reasoning_effort(choice.reasoning_effort)
            .mode(state.permission_mode())
            .servers(servers.as_ref().map(SessionServers::all))
            .skills(choice.parts.enabled(&skills))
            .sub_agents(choice.parts.kinds(system, &choice.providers))
            .tools(Arc::new(chosen_tools))
            .hooks(hooks)
            .follow_up(FollowUp::Enqueue)
            .compaction(choice.compaction)
            // After an abort, the user of an SDK continues from the completed steps.
            .stop_policy(StopPolicy::Keep)
            .call_texts(Arc::new(call_texts()));
        let opening = (setup, servers.as_ref());
        let opened = open_session(system, id, mode, opening, &mut choice).await?;
        let label = format!("session/{}/clients", opened.session.id());
        let scope = server.connections().child(label, ScopeOptions::default());
        let ignored = server.warnings().of(opened.session.id());
        let hosted = Arc::new(Self {
            scope: scope.map_err(|refused| StartError::stopped(&refused))?,
            system_prompt_bytes: opened.prompt_bytes,
            instructions: opened.instructions,
            session: opened.session,
            tools,
            attached_clients,
            declined: DeclinedQuestions::default(),
            form_client: Mutex::new(None),
            facts: facts_of(before, &state),
            state,
            files,
            pending: UnansweredRequests::default(),
            auto_mode: before.map_or_else(Arc::default, |before| Arc::clone(&before.auto_mode)),
            models,
            mcp_tokens,
            commands: ClientCommandQueue::default(),
            starts: StartOrder::default(),
            comparison: Semaphore::new(1),
            canvases: before.map_or_else(Arc::default, |before| Arc::clone(&before.canvases)),
            message_ids: Mutex::default(),
            servers,
            skills,
            opened_at: before.map_or_else(now, |before| before.opened_at),
            host_events,
            feeds: TaskTracker::new(),
            no_more_calls: CancellationToken::new(),
            cancelled: Mutex::new((TurnNumber(0), HashSet::new())),
            ignored,
            choice,
            settings,
            version: Arc::clone(&server.options().version),
            secrets: Arc::clone(server.secrets()),
            default_answer: server.options().default_answer.clone(),
        });
        hosted.begin(system, mode, generation).await?;
        Ok(hosted)
    }

    /// Connects the session with its models and its clients' tools. Writes the first files of the session, if a program
    /// stores them, and begins to copy the events.
    ///
    /// # Errors
    /// Returns the error of the program. The session is then closed, and a new session is removed.
    async fn begin(
        self: &Arc<Self>,
        system: &System,
        mode: OpenMode,
        generation: Option<ToolGeneration>,
    ) -> Result<(), StartError> {
        if let Some(models) = &self.models.auto_model {
            let session: Weak<dyn SwitchRequests> = Arc::<Self>::downgrade(self);
            models.bind(session);
        }
        if let Some(generation) = generation {
            self.forward(generation);
        }
        if self.choice.client.files_folder().is_none() {
            return Ok(());
        }
        if let Err(error) = self.describe_in_files().await {
            drop(self.close(Cause::new(CauseKind::Failure)).await);
            if mode == OpenMode::Create
                && let Err(error) = system.remove_session(self.id()).await
            {
                tracing::warn!(%error, "a session that was not created is still stored");
            }
            return Err(StartError {
                kind: StartErrorKind::Store,
                message: format!("the program cannot store the files of the session: {error}"),
                hint: None,
            });
        }
        self.begin_event_copy(mode);
        Ok(())
    }

    /// Reads the state of a session that may not be open.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn stored_state(server: &CopilotServer, id: &SessionId) -> WorkspaceState {
        session_state(server, id).await
    }
}
