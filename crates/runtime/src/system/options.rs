//! What a system is made of.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_model::Model;
use allstop_model::provider::KeyLookup;
use allstop_scope::{RootOptions, Scope};
use allstop_tools::Prompter;

use crate::config::{Config, ModelConfig};

/// What a system is made of: everything that the binary reads from flags, files, environment and home.
pub struct SystemOptions {
    /// The configuration, after flags have overridden it.
    pub config: Config,
    /// The model; `None`: what the configuration says.
    pub model: Option<ModelChoice>,
    /// Where what the model says is written as a script, if anywhere.
    pub record: Option<PathBuf>,
    /// Finds a key by the name of the environment variable in which people keep it.
    pub keys: KeyLookup,
    /// Where sessions are kept.
    pub store: StoreChoice,
    /// The working directory of tools, hooks and guardrails.
    pub folder: PathBuf,
    /// Where output goes that is too long for memory: a folder of its own for each session.
    pub spill_folder: PathBuf,
    /// Runtimes, containment, clock and ids. The grace is the configuration's, where that has one.
    pub scopes: RootOptions,
    /// Who is asked whether a call may run.
    pub prompter: Arc<dyn Prompter>,
    /// Variables that tools' commands and MCP servers do not inherit: secrets, which would reach the model with their
    /// output. The configuration lets some through.
    pub hidden_variables: Vec<std::ffi::OsString>,
    /// The process that the log names as the one that runs the turns.
    pub owner: Option<ProcessIdentity>,
}

impl SystemOptions {
    /// Makes the root of everything that runs in the system, with the configuration's grace.
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

/// Which model.
#[derive(Debug, Clone)]
pub enum ModelChoice {
    /// A script file.
    Scripted(PathBuf),
    /// A model of a provider.
    Named {
        /// Its name; with a URL the server's own name for it, taken literally.
        name: String,
        /// The URL of an OpenAI-compatible server.
        base_url: Option<String>,
    },
    /// One that is there already.
    Given(Arc<dyn Model>),
}

impl ModelChoice {
    /// What the configuration says; `None` if it names no model. With a URL every name is the server's own.
    pub fn of(config: &ModelConfig) -> Option<Self> {
        let name = config.name.as_deref()?;
        Some(match (script_of(name), &config.base_url) {
            (Some(file), None) => Self::Scripted(file.into()),
            (_, base_url) => Self::Named {
                name: name.to_owned(),
                base_url: base_url.clone(),
            },
        })
    }
}

/// The file of `script:FILE`.
pub(crate) fn script_of(name: &str) -> Option<&str> {
    name.strip_prefix("script:")
}

/// Where sessions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreChoice {
    /// In this file; its folder must be there.
    Sqlite(PathBuf),
    /// In memory, for as long as the process lives.
    Memory,
}
