//! Name, mode, changes of the model and workspace of a session. The workspace is a folder, which is removed together with
//! the session.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_core::TurnNumber;
use allstop_core::receipt::ItemKind;
use allstop_host::replace_file;
use allstop_scope::{Scope, WorkSpec};
use allstop_tools::permission::{ModeSwitch, PermissionMode};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::client_facts::SessionNote;

/// File with the name, the mode and the changes of the model, in the folder of the workspace.
const STATE_FILE: &str = "session.json";

/// Type of the event for a change of the model.
pub(super) const MODEL_CHANGE: &str = "session.model_change";

/// Maximum number of stored changes of the model. A person or a program changes the model a few times in a session. The
/// oldest changes leave the history first.
const MODEL_CHANGES_MAX: usize = 256;

/// Mode of the protocol in which the agent works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientMode {
    #[default]
    Interactive,
    /// The agent only reads: all other calls are denied.
    Plan,
    /// Like `interactive`. The agent always works until its task is done, and asks for permissions only.
    Autopilot,
}

/// Values that outlast the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredState {
    name: Option<String>,
    /// True if a person has chosen the name.
    is_named_by_user: bool,
    mode: ClientMode,
    model_changes: Vec<ModelChangeRecord>,
}

/// A change of the model, in the form of its event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ModelChangeRecord {
    after: TurnNumber,
    opening: Arc<str>,
    number: usize,
    data: Value,
}

impl ModelChangeRecord {
    fn of(note: &SessionNote) -> Self {
        Self {
            after: note.after,
            opening: Arc::clone(&note.opening),
            number: note.number,
            data: note.data.clone(),
        }
    }

    fn note(&self) -> SessionNote {
        SessionNote {
            after: self.after,
            opening: Arc::clone(&self.opening),
            number: self.number,
            kind: MODEL_CHANGE,
            data: self.data.clone(),
        }
    }
}

/// Result of a change of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameChange {
    Applied,
    /// An automatic name does not replace the name that a person has chosen.
    Kept,
}

/// Name, mode and workspace of a session.
#[derive(Debug)]
pub(crate) struct WorkspaceState {
    folder: PathBuf,
    stored: Arc<Mutex<StoredState>>,
    /// Permit of the job that writes the file. There is one, so that an older state never replaces a newer one.
    writer: Arc<Semaphore>,
    /// Scope of the jobs.
    scope: Scope,
    switch: ModeSwitch,
    /// Permission mode outside the mode `plan`.
    configured: PermissionMode,
}

impl WorkspaceState {
    /// Reads the state of a session from its workspace. A missing or unreadable file is an empty state.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn read(folder: PathBuf, configured: PermissionMode, scope: Scope) -> Self {
        let text = tokio::fs::read(folder.join(STATE_FILE)).await;
        let stored: StoredState = text
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        let state = Self {
            folder,
            switch: ModeSwitch::new(configured),
            configured,
            stored: Arc::default(),
            writer: Arc::new(Semaphore::new(1)),
            scope,
        };
        state.switch_to(stored.mode);
        *state.stored.lock() = stored;
        state
    }

    /// Folder of the workspace.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Mode of the permissions, which the mode of the session changes.
    pub(crate) fn permission_mode(&self) -> ModeSwitch {
        self.switch.clone()
    }

    pub(crate) fn name(&self) -> Option<String> {
        self.stored.lock().name.clone()
    }

    pub(crate) fn is_named_by_user(&self) -> bool {
        self.stored.lock().is_named_by_user
    }

    pub(crate) fn mode(&self) -> ClientMode {
        self.stored.lock().mode
    }

    /// Sets the name, and stores it.
    ///
    /// # Errors
    /// Returns an error if the name was not stored. The open session has the name.
    ///
    /// # Cancel safety
    /// If the future is dropped before the write begins, the name may not outlast the process.
    pub(crate) async fn set_name(&self, name: &str, is_by_user: bool) -> io::Result<NameChange> {
        {
            let mut stored = self.stored.lock();
            if stored.is_named_by_user && !is_by_user {
                return Ok(NameChange::Kept);
            }
            (stored.name, stored.is_named_by_user) = (Some(name.to_owned()), is_by_user);
        }
        self.store().await?;
        Ok(NameChange::Applied)
    }

    /// Sets the mode, and stores it. The mode applies from the next call on. Returns the former mode.
    ///
    /// # Errors
    /// Returns an error if the mode was not stored. The open session has the mode.
    ///
    /// # Cancel safety
    /// If the future is dropped before the write begins, the mode may not outlast the process.
    pub(crate) async fn set_mode(&self, mode: ClientMode) -> io::Result<ClientMode> {
        let before = std::mem::replace(&mut self.stored.lock().mode, mode);
        self.switch_to(mode);
        self.store().await?;
        Ok(before)
    }

    /// Events of the stored changes of the model, in their order.
    pub(super) fn model_changes(&self) -> Vec<SessionNote> {
        let stored = self.stored.lock();
        let changes = stored.model_changes.iter();
        changes.map(ModelChangeRecord::note).collect()
    }

    /// Stores the event of a change of the model, for the history of later openings.
    ///
    /// # Errors
    /// Returns an error if the event was not stored.
    ///
    /// # Cancel safety
    /// If the future is dropped before the write begins, the event may not outlast the process.
    pub(super) async fn add_model_change(&self, note: &SessionNote) -> io::Result<()> {
        {
            let mut stored = self.stored.lock();
            if stored.model_changes.len() == MODEL_CHANGES_MAX {
                stored.model_changes.remove(0);
            }
            stored.model_changes.push(ModelChangeRecord::of(note));
        }
        self.store().await
    }

    fn switch_to(&self, mode: ClientMode) {
        self.switch.set(match mode {
            ClientMode::Plan => PermissionMode::Plan,
            ClientMode::Interactive | ClientMode::Autopilot => self.configured,
        });
    }

    /// Writes the state to its file. A job owns the file, so a dropped future does not interrupt a write.
    async fn store(&self) -> io::Result<()> {
        let permit = Arc::clone(&self.writer).acquire_owned().await;
        let permit = permit.map_err(io::Error::other)?;
        let (stored, file) = (Arc::clone(&self.stored), self.folder.join(STATE_FILE));
        let spec = WorkSpec::new(ItemKind::Thread, "state of a session");
        let job = self.scope.spawn_blocking(spec, move |_cx| {
            let _permit = permit;
            let text = serde_json::to_string(&*stored.lock())?;
            replace_file(&file, &text)
        });
        let stopped = || io::Error::other("the server is being stopped");
        let job = job.map_err(|_refused| stopped())?;
        job.await.map_err(|_lost| stopped())?
    }
}

#[cfg(test)]
mod tests {
    use allstop_scope::RootOptions;
    use futures::FutureExt as _;

    use super::*;

    fn scope() -> Scope {
        Scope::root("state", RootOptions::current())
    }

    #[tokio::test]
    async fn dropped_future_does_not_interrupt_the_write() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().to_owned();
        let state = WorkspaceState::read(folder, PermissionMode::AcceptEdits, scope()).await;
        // The first poll begins the write, and the future is dropped then.
        assert!(state.set_name("chosen", true).now_or_never().is_none());
        let _written = state.writer.acquire().await.expect("the permits stay open");
        let text = std::fs::read_to_string(place.path().join(STATE_FILE)).expect("a file");
        assert!(text.contains("chosen"), "{text}");
    }

    #[tokio::test]
    async fn name_and_mode_outlast_the_process() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("of");
        let open = || WorkspaceState::read(folder.clone(), PermissionMode::AcceptEdits, scope());
        let state = open().await;
        assert_eq!(
            (state.name(), state.mode()),
            (None, ClientMode::Interactive)
        );
        let automatic = state.set_name("automatic", false).await;
        assert_eq!(automatic.expect("stored"), NameChange::Applied);
        state.set_name("chosen", true).await.expect("stored");
        let ignored = state.set_name("automatic", false).await;
        assert_eq!(ignored.expect("stored"), NameChange::Kept);
        state.set_mode(ClientMode::Plan).await.expect("stored");
        let again = open().await;
        assert_eq!(again.name().as_deref(), Some("chosen"));
        assert_eq!(again.permission_mode().get(), PermissionMode::Plan);
        again.set_mode(ClientMode::Autopilot).await.expect("stored");
        assert_eq!(again.permission_mode().get(), PermissionMode::AcceptEdits);
    }
}
