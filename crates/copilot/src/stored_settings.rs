//! Settings that clients store for all sessions: MCP servers, plugins, disabled skills, and defaults of the user.
//!
//! One file of the server contains them. A session uses the settings of the time at which it is opened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_host::{FolderLock, replace_file};
use allstop_jsonrpc::RpcError;
use allstop_model::ReasoningEffort;
use allstop_scope::{Scope, WorkSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client_parts::ClientServer;
use crate::hosted::SessionChoice;
use crate::plugins::{PluginStore, StoredPlugins};

/// The settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct StoredSettings {
    /// MCP servers of every session, as the clients have sent them.
    pub(crate) mcp_servers: BTreeMap<String, Map<String, Value>>,
    pub(crate) disabled_mcp_servers: BTreeSet<String>,
    pub(crate) disabled_skills: BTreeSet<String>,
    pub(crate) user: UserDefaults,
    #[serde(skip_serializing_if = "StoredPlugins::is_empty")]
    pub(crate) plugins: StoredPlugins,
}

/// Values for sessions whose clients make no choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct UserDefaults {
    /// True if the working directory is searched for skills and agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enable_config_discovery: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_effort: Option<ReasoningEffort>,
}

/// The file with the settings.
#[derive(Debug, Clone)]
pub(crate) struct SettingsFile {
    /// `None` if the server stores no settings.
    path: Option<Arc<Path>>,
    scope: Scope,
}

impl SettingsFile {
    pub(crate) fn new(path: Option<PathBuf>, scope: Scope) -> Self {
        let path = path.map(Arc::from);
        Self { path, scope }
    }

    /// Folder of the installed plugins, next to the file.
    ///
    /// # Errors
    /// Returns an error if the server stores no settings.
    pub(crate) fn plugin_store(&self) -> Result<PluginStore, RpcError> {
        Ok(PluginStore::beside(self.path()?))
    }

    fn path(&self) -> Result<&Arc<Path>, RpcError> {
        self.path.as_ref().ok_or_else(|| {
            RpcError::invalid_params("this server stores no settings: it has no folder for them")
        })
    }

    /// Reads the settings. A missing file contains the defaults.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is invalid.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn read(&self) -> Result<StoredSettings, RpcError> {
        match &self.path {
            None => Ok(StoredSettings::default()),
            Some(path) => {
                let path = Arc::clone(path);
                self.on_thread("reading settings", move || read(&path))
                    .await
            }
        }
    }

    /// Changes the settings, and returns the result of the change. A refused change leaves the file as it is.
    ///
    /// # Errors
    /// Returns the error of the change, or an error if the file cannot be read or written.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the change.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut StoredSettings) -> Result<T, RpcError> + Send + 'static,
    ) -> Result<T, RpcError> {
        let path = Arc::clone(self.path()?);
        let changing = move || {
            // Two servers at once must not lose each other's change. Without locks on the file system, the last change wins.
            let _lock = FolderLock::of_file(&path);
            let mut settings = read(&path)?;
            let result = change(&mut settings)?;
            let text = serde_json::to_string_pretty(&settings);
            let text = text.map_err(|error| failed(&path, &error))?;
            replace_file(&path, &text).map_err(|error| failed(&path, &error))?;
            Ok(result)
        };
        self.on_thread("change of settings", changing).await
    }

    /// Removes the copies of plugins that are no longer installed. The lock keeps the copy of a running installation, which
    /// the settings do not contain yet. The next removal repeats a failed one.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the removal.
    pub(crate) async fn remove_unused_plugins(&self) {
        let Ok(path) = self.path().cloned() else {
            return;
        };
        let removing = move || {
            let _lock = FolderLock::of_file(&path);
            let settings = read(&path)?;
            let store = PluginStore::beside(&path);
            let removed = store.remove_unused(&settings.plugins);
            removed.map_err(RpcError::internal_error)
        };
        if let Err(error) = self.on_thread("removal of plugins", removing).await {
            tracing::warn!(error = %error.message, "a copy of a removed plugin is still stored");
        }
    }

    /// Reads the settings, and returns the result of `look`, which may block its thread.
    ///
    /// # Errors
    /// Returns the error of `look`, or an error if the file cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn look<T: Send + 'static>(
        self,
        look: impl FnOnce(StoredSettings) -> Result<T, RpcError> + Send + 'static,
    ) -> Result<T, RpcError> {
        let settings = self.read().await?;
        self.on_thread("reading plugins", move || look(settings))
            .await
    }

    async fn on_thread<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> Result<T, RpcError> + Send + 'static,
    ) -> Result<T, RpcError> {
        let spec = WorkSpec::new(ItemKind::Thread, name);
        let working = self.scope.spawn_blocking(spec, move |_cx| work());
        let stopped = || RpcError::overloaded("the server is being stopped");
        let working = working.map_err(|_refused| stopped())?;
        working.await.map_err(|_stopped| stopped())?
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> RpcError {
    RpcError::internal_error(format!("the settings in {}: {error}", path.display()))
}

fn read(path: &Path) -> Result<StoredSettings, RpcError> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| failed(path, &error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(StoredSettings::default()),
        Err(error) => Err(failed(path, &error)),
    }
}

impl StoredSettings {
    /// Adds the settings to the choice of a client, which has precedence.
    ///
    /// # Errors
    /// Returns an error if a stored server is invalid, which the file of another version may contain.
    pub(crate) fn add_to(&self, choice: &mut SessionChoice) -> Result<(), RpcError> {
        let parts = &mut choice.parts;
        for (name, config) in &self.mcp_servers {
            if parts.servers.contains_key(name) {
                continue;
            }
            let server = ClientServer::stored(config).map_err(RpcError::internal_error)?;
            parts.servers.insert(name.clone(), server);
            if self.disabled_mcp_servers.contains(name) {
                parts.disabled_servers.insert(name.clone());
            }
        }
        parts.disabled_skills.extend(self.disabled_skills.clone());
        let searches = self.user.enable_config_discovery.unwrap_or_default();
        parts.searches_folder.get_or_insert(searches);
        choice.reasoning_effort = choice.reasoning_effort.or(self.user.reasoning_effort);
        Ok(())
    }
}
