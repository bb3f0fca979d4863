//! The running commands of a server, for lists outside the connections of its clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::TaskId;
use allstop_core::receipt::ReceiptItem;
use allstop_scope::Scope;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The running commands. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RunningCommands(Arc<Mutex<BTreeMap<TaskId, CommandEntry>>>);

#[derive(Debug)]
struct CommandEntry {
    scope: Scope,
    started_at: Instant,
}

/// A running command.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningCommandInfo {
    /// Id of the command.
    pub id: TaskId,
    /// Time since the start.
    pub age: Duration,
    /// Its work, as a dry run of a stop finds it.
    pub work: Vec<ReceiptItem>,
}

/// Removes the command when this value is dropped.
pub(crate) struct CommandGuard {
    commands: RunningCommands,
    id: TaskId,
}

impl Drop for CommandGuard {
    fn drop(&mut self) {
        drop(self.commands.0.lock().remove(&self.id));
    }
}

impl RunningCommands {
    /// The commands in the order of their ids, which grow with the time of the start.
    pub fn list(&self) -> Vec<RunningCommandInfo> {
        let commands = self.0.lock();
        let infos = commands.iter().map(|(id, entry)| RunningCommandInfo {
            id: id.clone(),
            age: entry.started_at.elapsed(),
            work: entry.scope.running(),
        });
        infos.collect()
    }

    /// True if the command runs.
    pub fn contains(&self, id: &TaskId) -> bool {
        self.0.lock().contains_key(id)
    }

    /// Adds a command whose processes belong to this scope.
    pub(crate) fn add(&self, id: TaskId, scope: Scope) -> CommandGuard {
        let started_at = Instant::now();
        let entry = CommandEntry { scope, started_at };
        self.0.lock().insert(id.clone(), entry);
        CommandGuard {
            commands: self.clone(),
            id,
        }
    }
}
