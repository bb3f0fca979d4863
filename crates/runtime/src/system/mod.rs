//! A running system: one store, one model, one tree of scopes, and the sessions that work in them.

mod background;
mod mcp;
mod open;
mod options;
mod parts;
mod session;
mod sessions;

use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::Timestamp;
use allstop_core::process::ProcessIdentity;
use allstop_log::Log;
use allstop_model::{Model, RecordingModel};
use allstop_scope::Scope;
use allstop_scope::process::ContainmentChoice;
use allstop_tools::mcp::McpServers;
use allstop_tools::{PermissionPolicy, Prompter};

pub use allstop_session::found::{FoundWork, found_work};
pub use background::{Kept, KeptWork, NotKept};
pub(crate) use options::script_of;
pub use options::{ModelChoice, StoreChoice, SystemOptions};
pub use parts::open_store;
pub use session::OpenSession;
pub use sessions::{Asks, InterruptedTurn, TalkedSession};

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
    /// Opens the store and makes the model. Nothing runs yet, and nothing is sent: [`System::start_servers`] is next.
    ///
    /// # Errors
    /// What is wrong, in one line: configuration, model, script, folders or store.
    ///
    /// # Cancel safety
    /// Dropping it may leave an empty store.
    pub async fn open(options: SystemOptions) -> Result<Self, StartError> {
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
            mut scopes,
            prompter,
            owner,
            hidden_variables,
            ..
        } = options;
        if let Some(grace) = config.deadlines.grace {
            scopes.grace = grace.into();
        }
        let parts = Parts {
            policy: Arc::new(open::policy(&config)),
            config,
            log: store.log(),
            model,
            prompter,
            folder,
            spill_folder,
            containment: scopes.containment.clone(),
            now: Arc::clone(&scopes.now),
            owner,
            hidden_variables,
            mcp,
        };
        Ok(Self {
            scope: Scope::root("process", scopes),
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

    /// What records the model, if anything does. Who has it saved does so where blocking is allowed: at the end, after a
    /// stop too.
    pub fn recording(&self) -> Option<&Arc<RecordingModel>> {
        self.recording.as_ref()
    }

    /// The servers of tools.
    pub fn mcp(&self) -> &McpServers {
        &self.parts.mcp
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.parts.config
    }

    /// Ends the servers of tools, and waits until all that was written is in the store and its file is closed. A blocked
    /// disk blocks it: who wants to exit races it against a limit.
    ///
    /// # Cancel safety
    /// Dropping it leaves the store closing.
    pub async fn close(&self) {
        tokio::join!(self.parts.mcp.close(), self.store.close());
    }
}
