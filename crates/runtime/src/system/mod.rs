//! A running system: one store, one model, one tree of scopes, and sessions. All work of the sessions runs in the
//! scopes, and a stop of a scope ends the work in the scope and below.

mod advance_answers;
mod builtin_script;
mod cleanup;
mod hidden;
mod joined_tools;
mod mcp;
mod missing_model;
mod open;
mod options;
mod parts;
mod request_check;
mod sessions;
mod setup;
mod spill;
mod sub_agent_kinds;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_agent::{AnswerSchema, SpanLinks, SubAgentKind};
use allstop_core::process::ProcessIdentity;
use allstop_core::{SessionId, Timestamp, TurnNumber};
use allstop_log::{Log, SessionError, fork_session};
use allstop_model::provider::KeyLookup;
use allstop_model::{Model, ProviderModel, ProviderOptions, RecordingModel};
use allstop_process::{ContainmentChoice, ProcessSpec};
use allstop_scope::Scope;
use allstop_session::{SessionRegistry, marker_prefix};
use allstop_tools::mcp::{McpOptions, McpServers, McpTokenSource};
use allstop_tools::{
    BackgroundHost, OutputBudget, OutputFolder, PermissionPolicy, Prompter, ShellConfig, ShellTool,
};
use tokio::sync::oneshot;

pub use allstop_session::orphan_scan::{OrphanedWork, scan_orphans};
pub use builtin_script::{BUILTIN_SCRIPTS, BuiltinScript};
pub(crate) use builtin_script::{builtin_script, builtin_script_names};
pub use hidden::{is_secret_variable, without_exempted};
pub use mcp::{SessionMcpServer, mcp_login_options, mcp_servers, unusable_project_servers};
pub use open::rules_of_absent_servers;
pub(crate) use options::script_of;
pub use options::{ModelChoice, StoreChoice, SystemOptions};
pub use parts::{SystemStore, open_model, open_store, open_store_for_reading};
pub use request_check::check_requests;
pub use sessions::{InterruptedTurn, OpenSession};
pub use setup::{AutoCompaction, QuestionRecipient, SessionSetup, SessionTools, SystemPrompt};

use crate::config::Config;
use crate::cost::ModelPrices;
use crate::definitions::Definitions;
use crate::error::StartError;
use crate::output_folder::output_folder;
use crate::session_removal::{RemoveSessionError, remove_session_with_output};

/// A running system. The system does not own its sessions; the sessions share the parts of the system.
#[derive(Debug)]
pub struct System {
    scope: Scope,
    store: parts::SystemStore,
    recording: Option<Arc<RecordingModel>>,
    parts: Arc<SystemParts>,
}

/// Parts of a system that its sessions share.
pub(crate) struct SystemParts {
    config: Config,
    log: Arc<dyn Log>,
    store_files: Vec<PathBuf>,
    model: Arc<dyn Model>,
    policy: Arc<PermissionPolicy>,
    prompter: Arc<dyn Prompter>,
    folder: PathBuf,
    spill_folder: PathBuf,
    /// Budget for the files in `spill_folder`.
    output_budget: Arc<OutputBudget>,
    containment: ContainmentChoice,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    owner: Option<ProcessIdentity>,
    spans: Option<Arc<dyn SpanLinks>>,
    answer: Option<AnswerSchema>,
    hidden_variables: Vec<OsString>,
    mcp: McpServers,
    keys: KeyLookup,
    /// Name of the configured model. If it is a script file, the name has an absolute path, so that it is valid in any
    /// folder.
    named_model: Option<String>,
    /// True if each session must choose a model.
    lacks_model: bool,
    cleanup: Arc<cleanup::CleanupThreads>,
    /// Commands, skills and agents from files.
    definitions: Arc<Definitions>,
    /// Kinds of sub-agents, from the definitions of agents.
    sub_agent_kinds: Arc<[SubAgentKind]>,
    /// All open sessions.
    registry: SessionRegistry,
}

impl SystemParts {
    /// Working directory of a session.
    fn folder_of<'a>(&'a self, setup: &'a SessionSetup) -> &'a Path {
        setup.folder.as_ref().unwrap_or(&self.folder)
    }
}

impl std::fmt::Debug for SystemParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SystemParts")
            .field("log", &self.log)
            .field("model", &self.model)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl System {
    /// Opens the store and creates the model, with a new tree of scopes. This function runs no agent and sends no
    /// request to a provider. Call [`System::start_servers`] next.
    ///
    /// # Errors
    /// Returns the first error of configuration, model, script, folders or store, as one line.
    ///
    /// # Cancel safety
    /// Dropping the future may leave an empty store.
    pub async fn open(options: SystemOptions) -> Result<Self, StartError> {
        let root = options.root();
        Self::open_in(root, options).await
    }

    /// Like [`System::open`], but in an existing tree of scopes ([`SystemOptions::root`]), so that the holder of the
    /// tree can stop the opening. Reads files, so call it on a thread that may block.
    ///
    /// # Errors
    /// Returns the errors of [`System::open`].
    ///
    /// # Cancel safety
    /// Like [`System::open`].
    pub async fn open_in(root: Scope, options: SystemOptions) -> Result<Self, StartError> {
        Self::open_on(root, options, None).await
    }

    /// Like [`System::open_in`], but the work of the store runs in another scope, so that a stop of all work of the
    /// system neither ends nor lists it. The work ends when the store is closed.
    ///
    /// # Errors
    /// Returns the errors of [`System::open`].
    ///
    /// # Cancel safety
    /// Like [`System::open`].
    pub async fn open_beside(
        root: Scope,
        store_scope: &Scope,
        options: SystemOptions,
    ) -> Result<Self, StartError> {
        Self::open_all(root, options, None, store_scope).await
    }

    /// Like [`System::open_in`], but with a store that is already open, for a caller that has read from it. `None`
    /// opens the store of the options.
    ///
    /// # Errors
    /// Returns the errors of [`System::open`].
    ///
    /// # Cancel safety
    /// Like [`System::open`].
    pub async fn open_on(
        root: Scope,
        options: SystemOptions,
        store: Option<SystemStore>,
    ) -> Result<Self, StartError> {
        let store_scope = root.clone();
        // The future is boxed, because it is large.
        Box::pin(Self::open_all(root, options, store, &store_scope)).await
    }

    async fn open_all(
        root: Scope,
        options: SystemOptions,
        store: Option<SystemStore>,
        store_scope: &Scope,
    ) -> Result<Self, StartError> {
        // Checks flags and configuration before it accesses the store.
        let mut model = parts::open_model(&options)?;
        let lacks_model = matches!(options.model, Some(ModelChoice::PerSession));
        let recording = options
            .record
            .as_ref()
            .map(|path| Arc::new(RecordingModel::new(Arc::clone(&model), path)));
        if let Some(recording) = &recording {
            model = Arc::clone(recording) as _;
        }
        open::check_rules(&options.config)?;
        open::check_folders(&options)?;
        let mcp = mcp::usable_mcp_servers(&options)?;
        let sub_agent_kinds = sub_agent_kinds::of(&options);
        let store = match store {
            Some(store) => store,
            None => SystemStore::open(&options.store, store_scope).await?,
        };
        let mut store_files = store.log().files();
        store_files.extend(options.store.history_file());
        store_files.extend(options.reserved.iter().cloned());
        let SystemOptions {
            config,
            folder,
            spill_folder,
            scopes,
            prompter,
            owner,
            spans,
            answer,
            hidden_variables,
            keys,
            definitions,
            ..
        } = options;
        let output_budget = OutputBudget::new(&spill_folder, config.store.output_limits());
        let named_model = config.model.name.as_deref().map(options::name_anywhere);
        let parts = SystemParts {
            policy: Arc::new(open::policy(&config)),
            config,
            log: Arc::clone(store.log()),
            store_files,
            model,
            prompter,
            folder,
            spill_folder,
            output_budget: Arc::new(output_budget),
            containment: scopes.containment.clone(),
            now: Arc::clone(&scopes.now),
            owner,
            spans,
            answer,
            hidden_variables,
            mcp,
            keys,
            named_model,
            lacks_model,
            cleanup: Arc::new(cleanup::CleanupThreads::new(scopes)),
            definitions,
            sub_agent_kinds,
            registry: SessionRegistry::default(),
        };
        Ok(Self {
            scope: root,
            store,
            recording,
            parts: Arc::new(parts),
        })
    }

    /// Starts the MCP servers. Waits for each server at most for its own time limit. This function is separate from
    /// [`System::open`], so that the caller can show the reason for the wait.
    ///
    /// # Errors
    /// Returns an error if a stop came first.
    ///
    /// # Cancel safety
    /// If the future is dropped, the servers continue to start.
    pub async fn start_servers(&self) -> Result<(), StartError> {
        mcp::start(&self.parts.mcp, &self.scope).await
    }

    /// Root scope of all work in the system. A stop with the extent `process` stops all sessions and their background
    /// work.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The registry of the open sessions.
    pub fn registry(&self) -> &SessionRegistry {
        &self.parts.registry
    }

    /// The store.
    pub fn store(&self) -> &SystemStore {
        &self.store
    }

    /// The log of the store.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.parts.log
    }

    /// Removes a session that no process has open, and its long output.
    ///
    /// # Errors
    /// Returns the errors of [`remove_session_with_output`].
    ///
    /// # Cancel safety
    /// Like [`remove_session_with_output`].
    pub async fn remove_session(&self, id: &SessionId) -> Result<(), RemoveSessionError> {
        remove_session_with_output(
            self.log().as_ref(),
            &self.parts.spill_folder,
            &self.scope,
            id,
        )
        .await
    }

    /// False if each session must choose a model, because the configuration names none.
    pub fn has_model(&self) -> bool {
        !self.parts.lacks_model
    }

    /// The file of the store; `None` if the store has no file.
    pub fn store_file(&self) -> Option<PathBuf> {
        self.store.log().files().into_iter().next()
    }

    /// The configured model.
    pub fn model(&self) -> &Arc<dyn Model> {
        &self.parts.model
    }

    /// Name of the model.
    pub fn model_name(&self) -> &str {
        self.parts.model.name()
    }

    /// Prices of models, for display.
    pub fn prices(&self) -> ModelPrices {
        ModelPrices::new(&self.config().model).opened_as(self.model_name())
    }

    /// Creates a model of any provider, even one that the configuration does not name, for one session. If the options
    /// contain a key, only this key is sent. The limits of answers, and the function that finds keys, are those of the
    /// system.
    ///
    /// # Errors
    /// Returns an error if the provider is unknown, its key is missing, or the URL is invalid.
    pub fn provider_model(
        &self,
        name: &str,
        options: ProviderOptions,
    ) -> Result<Arc<dyn Model>, StartError> {
        let options = options
            .key_lookup(Arc::clone(&self.parts.keys))
            .answer_limits(self.parts.config.model.answer_limits());
        Ok(Arc::new(ProviderModel::new(name, options)?))
    }

    /// Creates a shell for commands that a person or a program requests in a session. They are background work of the host,
    /// which is the session.
    pub fn requested_shell(
        &self,
        session: &SessionId,
        folder: impl Into<PathBuf>,
        host: Arc<dyn BackgroundHost>,
    ) -> ShellTool {
        let parts = &self.parts;
        let mut shell = ShellConfig::new(folder, Arc::new(self.output_folder(session)));
        shell.containment = parts.containment.clone();
        shell.marker_prefix = marker_prefix(session);
        shell.env_hidden = without_exempted(&parts.hidden_variables, &parts.config.shell.env);
        ShellTool::new(shell, host)
    }

    /// Creates the specification of a program that a client's request runs in a session, with the containment and the hidden
    /// variables of a command of the model.
    pub fn requested_process(
        &self,
        session: &SessionId,
        program: impl Into<OsString>,
        folder: impl Into<PathBuf>,
    ) -> ProcessSpec {
        let parts = &self.parts;
        let marker = format!("{}{}", marker_prefix(session), ulid::Ulid::generate());
        ProcessSpec::new(program, marker)
            .cwd(folder)
            .containment(parts.containment.clone())
            .env_hidden(without_exempted(
                &parts.hidden_variables,
                &parts.config.shell.env,
            ))
    }

    /// Folder for the long output of a session's calls, with its limits.
    pub fn output_folder(&self, session: &SessionId) -> OutputFolder {
        OutputFolder::new(self.session_folder(session))
            .within(Arc::clone(&self.parts.output_budget))
    }

    /// Working directory of sessions without a chosen folder.
    pub fn folder(&self) -> &Path {
        &self.parts.folder
    }

    /// Folder with the files of a session, such as its long output. The folder is removed together with the session, or if
    /// it is empty.
    pub fn session_folder(&self, id: &SessionId) -> PathBuf {
        output_folder(&self.parts.spill_folder, id)
    }

    /// Creates further MCP servers for one session ([`SessionSetup::servers`]). Starts no server. Servers
    /// that refuse access get tokens from `tokens`.
    ///
    /// # Errors
    /// Returns an error for the first server that cannot be used.
    pub fn session_servers(
        &self,
        servers: &[SessionMcpServer],
        folder: impl Into<PathBuf>,
        tokens: Arc<dyn McpTokenSource>,
    ) -> Result<McpServers, StartError> {
        let parts = &self.parts;
        let context = self.server_context();
        let shared = McpOptions::new(folder, parts.spill_folder.clone())
            .token_source(tokens)
            .containment(parts.containment.clone());
        mcp::session_servers(&context, servers, shared)
    }

    /// Checks the settings of a further MCP server of a session. Starts no server.
    ///
    /// # Errors
    /// Returns an error if the server cannot be used.
    pub fn check_session_server(&self, server: &SessionMcpServer) -> Result<(), StartError> {
        mcp::check_session_server(&self.server_context(), server)
    }

    fn server_context(&self) -> mcp::ServerContext<'_> {
        mcp::ServerContext {
            config: &self.parts.config,
            hidden_variables: &self.parts.hidden_variables,
            keys: &self.parts.keys,
        }
    }

    /// Starts further MCP servers of a session, except late ones. Waits for each server at most for its own time limit.
    /// Returns the scope of the servers, which the caller closes after [`McpServers::close`].
    ///
    /// # Errors
    /// Returns an error if a stop came first.
    ///
    /// # Cancel safety
    /// If the future is dropped, the servers continue to start, and end with the process.
    pub async fn start_session_servers(
        &self,
        servers: &McpServers,
        session: &SessionId,
    ) -> Result<Scope, StartError> {
        mcp::start_session_servers(servers, &self.scope, session).await
    }

    /// Copies the conversation of a session into a new session: all ended turns, or only the turns before the turn
    /// `before`. Background work stays with the first session.
    ///
    /// # Errors
    /// Returns the errors of [`fork_session`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the new session may have only a part of the turns.
    pub async fn fork_session(
        &self,
        from: &SessionId,
        to: SessionId,
        before: Option<TurnNumber>,
    ) -> Result<(), SessionError> {
        fork_session(self.log(), from, (to, (self.parts.now)()), before).await
    }

    /// The MCP servers.
    pub fn mcp(&self) -> &McpServers {
        &self.parts.mcp
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.parts.config
    }

    /// Commands, skills and agents from files.
    pub fn definitions(&self) -> &Arc<Definitions> {
        &self.parts.definitions
    }

    /// File that records the model's answers, if any.
    pub fn recording_path(&self) -> Option<&Path> {
        self.recording.as_ref().map(|recording| recording.path())
    }

    /// Saves the recording, if any, on a dedicated thread.
    ///
    /// # Errors
    /// Returns the reason if the file could not be written.
    ///
    /// # Cancel safety
    /// If the future is dropped, the thread continues to write.
    pub async fn save_recording(&self) -> Option<Result<PathBuf, String>> {
        let recording = Arc::clone(self.recording.as_ref()?);
        let path = recording.path().to_owned();
        let (tx, rx) = oneshot::channel();
        self.parts.cleanup.begin("saving the recording", move || {
            // The receiver may be gone.
            drop(tx.send(recording.save().map_err(|error| error.to_string())));
        });
        let saved = rx.await;
        Some(match saved {
            Ok(saved) => saved.map(|()| path),
            Err(_) => Err("no thread could be started".to_owned()),
        })
    }

    /// Ends the MCP servers, removes empty folders, and waits until the store has written all data and closed its file.
    /// This call takes as long as the disk blocks, so a caller that wants to exit must limit its wait.
    ///
    /// # Cancel safety
    /// If the future is dropped, the store continues to close.
    pub async fn close(&self) {
        tokio::join!(
            self.parts.mcp.close(),
            self.store.log().close(),
            self.parts.cleanup.wait()
        );
    }
}
