//! A running system: one store, one model, one tree of scopes, and the sessions that work in them.

mod cleanup;
mod hidden;
mod mcp;
mod open;
mod options;
mod parts;
mod sessions;
mod spill;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_core::Timestamp;
use allstop_core::process::ProcessIdentity;
use allstop_log::Log;
use allstop_model::{Model, RecordingModel};
use allstop_scope::Scope;
use allstop_scope::process::ContainmentChoice;
use allstop_tools::mcp::McpServers;
use allstop_tools::{PermissionPolicy, Prompter};
use tokio::sync::oneshot;

pub use allstop_session::found::{FoundWork, found_work};
pub use hidden::is_secret_variable;
pub(crate) use options::script_of;
pub use options::{ModelChoice, StoreChoice, SystemOptions};
pub use parts::open_store;
pub use sessions::{Asks, InterruptedTurn, OpenSession};

use crate::config::Config;
use crate::error::StartError;

/// A running system. It holds no session: those hold what they need of it.
#[derive(Debug)]
pub struct System {
    scope: Scope,
    store: parts::Store,
    recording: Option<Arc<RecordingModel>>,
    parts: Arc<Parts>,
}

/// What sessions need of their system.
pub(crate) struct Parts {
    config: Config,
    log: Arc<dyn Log>,
    store_files: Vec<PathBuf>,
    model: Arc<dyn Model>,
    policy: Arc<PermissionPolicy>,
    prompter: Arc<dyn Prompter>,
    folder: PathBuf,
    spill_folder: PathBuf,
    containment: ContainmentChoice,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    owner: Option<ProcessIdentity>,
    hidden_variables: Vec<std::ffi::OsString>,
    mcp: McpServers,
    cleanup: Arc<cleanup::Cleanup>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("log", &self.log)
            .field("model", &self.model)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl System {
    /// Opens the store and makes the model, with a tree of scopes of its own. Nothing runs yet, and nothing is sent:
    /// [`System::start_servers`] is next.
    ///
    /// # Errors
    /// What is wrong, in one line: configuration, model, script, folders or store.
    ///
    /// # Cancel safety
    /// Dropping it may leave an empty store.
    pub async fn open(options: SystemOptions) -> Result<Self, StartError> {
        let root = options.root();
        Self::open_in(root, options).await
    }

    /// The same in a tree that is there already: [`SystemOptions::root`]. So whoever has the tree can stop the opening.
    /// It reads files: run it where a thread may block.
    ///
    /// # Errors
    /// As [`System::open`].
    ///
    /// # Cancel safety
    /// As [`System::open`].
    pub async fn open_in(root: Scope, options: SystemOptions) -> Result<Self, StartError> {
        // What is wrong with the flags is said before the store is touched.
        let mut model = parts::model(&options)?;
        let recording = options
            .record
            .as_ref()
            .map(|path| Arc::new(RecordingModel::new(Arc::clone(&model), path)));
        if let Some(recording) = &recording {
            model = Arc::clone(recording) as _;
        }
        open::check_rules(&options.config)?;
        open::check_folders(&options)?;
        let mcp = mcp::servers(&options)?;
        let store = parts::Store::open(&options.store).await?;
        let SystemOptions {
            config,
            folder,
            spill_folder,
            scopes,
            prompter,
            owner,
            hidden_variables,
            ..
        } = options;
        let parts = Parts {
            policy: Arc::new(open::policy(&config)),
            config,
            log: store.log(),
            store_files: store.files(),
            model,
            prompter,
            folder,
            spill_folder,
            containment: scopes.containment.clone(),
            now: Arc::clone(&scopes.now),
            owner,
            hidden_variables,
            mcp,
            cleanup: Arc::new(cleanup::Cleanup::new(scopes)),
        };
        Ok(Self {
            scope: root,
            store,
            recording,
            parts: Arc::new(parts),
        })
    }

    /// Starts the servers of tools, and waits for each no longer than its own limit. Done apart from [`System::open`], so
    /// that whoever waits can say what for.
    ///
    /// # Errors
    /// A stop came first.
    ///
    /// # Cancel safety
    /// Dropping it leaves them starting.
    pub async fn start_servers(&self) -> Result<(), StartError> {
        mcp::start(&self.parts.mcp, &self.scope).await
    }

    /// The root of everything that runs here: stopping it, with the extent `process`, stops all sessions and their
    /// background work.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The store.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.parts.log
    }

    /// The model's name.
    pub fn model_name(&self) -> &str {
        self.parts.model.name()
    }

    /// The servers of tools.
    pub fn mcp(&self) -> &McpServers {
        &self.parts.mcp
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.parts.config
    }

    /// The file that the model's answers are recorded in, if they are.
    pub fn recording_path(&self) -> Option<&Path> {
        self.recording.as_ref().map(|recording| recording.path())
    }

    /// Saves the recording, if there is one, on a thread of its own.
    ///
    /// # Errors
    /// Why it is not written.
    ///
    /// # Cancel safety
    /// Dropping it leaves the thread writing.
    pub async fn save_recording(&self) -> Option<Result<PathBuf, String>> {
        let recording = Arc::clone(self.recording.as_ref()?);
        let path = recording.path().to_owned();
        let (tx, rx) = oneshot::channel();
        self.parts.cleanup.begin("saving the recording", move || {
            // Whoever waited may have gone.
            drop(tx.send(recording.save().map_err(|error| error.to_string())));
        });
        let saved = rx.await;
        Some(match saved {
            Ok(saved) => saved.map(|()| path),
            Err(_) => Err("no thread could be started".to_owned()),
        })
    }

    /// Ends the MCP servers, and waits until all that was written is in the store, its file is closed and empty folders
    /// are removed. A blocked disk blocks it: who wants to exit races it against a limit.
    ///
    /// # Cancel safety
    /// Dropping it leaves the store closing.
    pub async fn close(&self) {
        tokio::join!(
            self.parts.mcp.close(),
            self.store.close(),
            self.parts.cleanup.wait()
        );
    }
}
