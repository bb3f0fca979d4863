//! Options of a system.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_agent::{AnswerSchema, SpanLinks};
use allstop_core::process::ProcessIdentity;
use allstop_model::Model;
use allstop_model::provider::KeyLookup;
use allstop_nats::NatsOptions;
use allstop_scope::{RootOptions, Scope};
use allstop_tools::permission::FixedAnswer;
use allstop_tools::{PermissionAnswer, Prompter};

use crate::config::{Config, ModelConfig};
use crate::definitions::Definitions;
use crate::link_target::link_target;

/// Options of a system: all values that the binary reads from flags, files, environment and home folder.
#[non_exhaustive]
pub struct SystemOptions {
    /// The configuration, after flags have overridden it.
    pub config: Config,
    /// Commands, skills and agents from files.
    pub definitions: Arc<Definitions>,
    /// The model; `None` for the model of the configuration.
    pub model: Option<ModelChoice>,
    /// Schema of the final answer of each turn; `None` for any text.
    pub answer: Option<AnswerSchema>,
    /// File for a script with the recorded answers of the model.
    pub record: Option<PathBuf>,
    /// Finds an API key by the name of its environment variable.
    pub keys: KeyLookup,
    /// Storage of sessions.
    pub store: StoreChoice,
    /// Working directory of tools, hooks and guardrails.
    pub folder: PathBuf,
    /// Folder for output that is too long for memory, with a subfolder for each session. All processes that use the
    /// folder count its files. Files of ended work are removed if a limit of the configuration is reached.
    pub spill_folder: PathBuf,
    /// Folder for the files with the tokens of logins at MCP servers. `None` means that servers have no login.
    pub login_folder: Option<PathBuf>,
    /// Files and folders that file tools must not access, in addition to the files of the store.
    pub reserved: Vec<PathBuf>,
    /// Options of the root scope: runtimes, containment of processes, clock and ids. A grace period in the
    /// configuration overrides the grace period of these options.
    pub scopes: RootOptions,
    /// Prompter, which asks a person whether a tool call may run.
    pub prompter: Arc<dyn Prompter>,
    /// Variables that tools' commands and MCP servers do not inherit: secrets, which could reach the model in the
    /// output of commands and servers. The configuration can exempt some of them.
    pub hidden_variables: Vec<OsString>,
    /// Process that the log names as the owner of the turns.
    pub owner: Option<ProcessIdentity>,
    /// Connects the spans of the agents with a tracer; `None` without traces.
    pub spans: Option<Arc<dyn SpanLinks>>,
}

impl SystemOptions {
    /// Creates options for sessions in memory, without keys of providers. `folder` is the working directory. A call that
    /// needs a permission is denied.
    pub fn new(config: Config, folder: impl Into<PathBuf>) -> Self {
        Self {
            config,
            definitions: Arc::default(),
            model: None,
            answer: None,
            record: None,
            keys: Arc::new(|_variable| None),
            store: StoreChoice::Memory,
            folder: folder.into(),
            spill_folder: std::env::temp_dir().join("allstop-output"),
            login_folder: None,
            reserved: Vec::new(),
            scopes: RootOptions::for_any_runtime(),
            prompter: Arc::new(FixedAnswer(PermissionAnswer::Unanswered)),
            hidden_variables: Vec::new(),
            owner: None,
            spans: None,
        }
    }

    /// Sets the commands, skills and agents from files.
    #[must_use]
    pub fn definitions(mut self, definitions: Arc<Definitions>) -> Self {
        self.definitions = definitions;
        self
    }

    /// Sets the model.
    #[must_use]
    pub fn model(mut self, model: impl Into<Option<ModelChoice>>) -> Self {
        self.model = model.into();
        self
    }

    /// Sets the schema of the final answer of each turn.
    #[must_use]
    pub fn answer(mut self, answer: impl Into<Option<AnswerSchema>>) -> Self {
        self.answer = answer.into();
        self
    }

    /// Sets the file for the recorded answers of the model.
    #[must_use]
    pub fn record(mut self, record: impl Into<Option<PathBuf>>) -> Self {
        self.record = record.into();
        self
    }

    /// Sets the function that finds API keys.
    #[must_use]
    pub fn keys(mut self, keys: KeyLookup) -> Self {
        self.keys = keys;
        self
    }

    /// Sets the storage of sessions.
    #[must_use]
    pub fn store(mut self, store: StoreChoice) -> Self {
        self.store = store;
        self
    }

    /// Sets the folder for long output.
    #[must_use]
    pub fn spill_folder(mut self, spill_folder: impl Into<PathBuf>) -> Self {
        self.spill_folder = spill_folder.into();
        self
    }

    /// Sets the folder for the tokens of logins at MCP servers.
    #[must_use]
    pub fn login_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.login_folder = folder;
        self
    }

    /// Sets the files and folders that file tools must not access.
    #[must_use]
    pub fn reserved(mut self, reserved: Vec<PathBuf>) -> Self {
        self.reserved = reserved;
        self
    }

    /// Sets the options of the root scope.
    #[must_use]
    pub fn scopes(mut self, scopes: RootOptions) -> Self {
        self.scopes = scopes;
        self
    }

    /// Sets the prompter.
    #[must_use]
    pub fn prompter(mut self, prompter: Arc<dyn Prompter>) -> Self {
        self.prompter = prompter;
        self
    }

    /// Sets the variables that tools and MCP servers do not inherit.
    #[must_use]
    pub fn hidden_variables(mut self, hidden_variables: Vec<OsString>) -> Self {
        self.hidden_variables = hidden_variables;
        self
    }

    /// Sets the process that the log names as the owner of the turns.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<Option<ProcessIdentity>>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Sets the connection of the spans with a tracer.
    #[must_use]
    pub fn spans(mut self, spans: impl Into<Option<Arc<dyn SpanLinks>>>) -> Self {
        self.spans = spans.into();
        self
    }

    /// Creates the root scope of the system, with the configured grace period.
    pub fn root(&self) -> Scope {
        let mut scopes = self.scopes.clone();
        if let Some(grace) = self.config.deadlines.grace {
            scopes.grace = grace.into();
        }
        Scope::root("process", scopes)
    }
}

impl fmt::Debug for SystemOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemOptions")
            .field("config", &self.config)
            .field("model", &self.model)
            .field("store", &self.store)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// Choice of a model.
#[derive(Debug, Clone)]
pub enum ModelChoice {
    /// A script file.
    Scripted(PathBuf),
    /// A model of a provider.
    Named {
        /// Name of the model. With a URL, the server's own name for the model, used literally.
        name: String,
        /// URL of an OpenAI-compatible server.
        base_url: Option<String>,
    },
    /// An existing model.
    Given(Arc<dyn Model>),
    /// No model: each session chooses one ([`SessionSetup::model`](super::SessionSetup::model)).
    PerSession,
}

impl ModelChoice {
    /// Returns the model that the configuration names; `None` if it names no model. If the configuration has a URL,
    /// every name that does not refer to a script is the server's own name for the model.
    pub fn of(config: &ModelConfig) -> Option<Self> {
        let name = config.name.as_deref()?;
        Some(match script_of(name) {
            Some(file) => Self::Scripted(file.into()),
            None => Self::Named {
                name: name.to_owned(),
                base_url: config.base_url.clone(),
            },
        })
    }
}

/// Returns the script that a model name refers to. Accepts one colon, as in the configuration, and two colons, as in
/// messages and receipts.
pub(crate) fn script_of(name: &str) -> Option<&str> {
    let script = name.strip_prefix("script:")?;
    Some(script.strip_prefix(':').unwrap_or(script))
}

/// Returns the name of a model. If the name refers to a script file, the path in the returned name is absolute.
pub(super) fn name_anywhere(name: &str) -> String {
    let path = script_of(name).and_then(|file| std::path::absolute(file).ok());
    match path
        .as_deref()
        .filter(|path| path.exists())
        .and_then(Path::to_str)
    {
        Some(path) => format!("script:{path}"),
        None => name.to_owned(),
    }
}

/// Choice of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreChoice {
    /// A file in an existing folder.
    Sqlite(PathBuf),
    /// Memory, while the process runs.
    Memory,
    /// NATS servers, for several machines.
    Nats(Box<NatsOptions>),
}

impl StoreChoice {
    /// The file next to the store that contains a person's input in chats.
    pub fn history_file(&self) -> Option<PathBuf> {
        self.beside(".history")
    }

    /// The folder next to the store for the long output of the sessions.
    pub fn output_folder(&self) -> Option<PathBuf> {
        self.beside(".output")
    }

    /// A path that begins with the path of the store. If the store is a symbolic link, the path begins with the target of
    /// the link, because all names of one store must lead to the same files.
    fn beside(&self, end: &str) -> Option<PathBuf> {
        let Self::Sqlite(path) = self else {
            return None;
        };
        let path = link_target(path);
        let mut name = path.file_name()?.to_owned();
        name.push(end);
        Some(path.with_file_name(name))
    }
}
