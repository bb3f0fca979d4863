//! Queue of the slash commands of a session.
//!
//! A client adds a command to the queue, and the clients execute the commands one by one. A command is executed when the
//! messages ahead of it have their outcomes.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_jsonrpc::RpcError;
use allstop_scope::WorkSpec;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::HostedSession;

/// Command of the server that replaces the oldest turns by a summary.
pub(crate) const COMPACT: &str = "compact";

/// Maximum number of waiting commands of a session. Users type commands, so a full queue shows that no client executes
/// them.
const COMMANDS_MAX: usize = 64;

/// Maximum length of a command in bytes, many times the usual length.
const COMMAND_LEN_MAX: usize = 4 * 1_024;

/// Event about a change of the waiting messages and commands.
const CHANGED: &str = "pending_messages.modified";

/// A command that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueuedCommand {
    pub id: Arc<str>,
    /// Text, such as `/deploy now`.
    pub text: Arc<str>,
}

/// Commands that wait, in their order.
#[derive(Debug, Default)]
pub(crate) struct ClientCommandQueue(Mutex<Commands>);

#[derive(Debug, Default)]
struct Commands {
    waiting: VecDeque<QueuedCommand>,
    /// True while the session executes commands.
    is_running: bool,
}

impl ClientCommandQueue {
    pub(crate) fn all(&self) -> Vec<QueuedCommand> {
        self.0.lock().waiting.iter().cloned().collect()
    }

    /// Removes a command. Returns false if no command with this id waits.
    pub(crate) fn remove(&self, id: &str) -> bool {
        let waiting = &mut self.0.lock().waiting;
        let len = waiting.len();
        waiting.retain(|command| *command.id != *id);
        waiting.len() < len
    }

    /// Adds a command. Returns true if the caller must start to execute commands.
    fn add(&self, command: QueuedCommand) -> Result<bool, RpcError> {
        let mut commands = self.0.lock();
        if commands.waiting.len() == COMMANDS_MAX {
            let message = format!("the queue is full: {COMMANDS_MAX} commands wait");
            return Err(RpcError::overloaded(message));
        }
        commands.waiting.push_back(command);
        Ok(!std::mem::replace(&mut commands.is_running, true))
    }

    /// Returns the first command without removing it. The caller ends its work if no command waits.
    fn first(&self) -> Option<QueuedCommand> {
        let mut commands = self.0.lock();
        let first = commands.waiting.front().cloned();
        commands.is_running = first.is_some();
        first
    }

    /// Stops the execution until a client adds another command.
    fn pause(&self) {
        self.0.lock().is_running = false;
    }
}

impl HostedSession {
    /// Adds a command to the queue.
    ///
    /// # Errors
    /// Returns an error if the text is no command, or if the queue is full.
    pub(crate) fn enqueue_command(self: &Arc<Self>, text: String) -> Result<(), RpcError> {
        let is_command = text.strip_prefix('/').is_some_and(|rest| !rest.is_empty());
        if !is_command || text.len() > COMMAND_LEN_MAX {
            let message =
                format!("`command` must begin with `/` and have at most {COMMAND_LEN_MAX} bytes");
            return Err(RpcError::invalid_params(message));
        }
        let id = self.new_message_id();
        let command = QueuedCommand {
            id: id.as_str().into(),
            text: text.into(),
        };
        let is_first = self.commands.add(command)?;
        self.send_ephemeral(CHANGED, json!({}));
        if is_first {
            let session = Arc::clone(self);
            let spec = WorkSpec::new(ItemKind::Future, "slash commands of a session");
            let spawned = self.scope.spawn(spec, |cx| async move {
                tokio::select! {
                    _stopped = cx.stopped_at("slash commands of a session") => {}
                    () = session.session.closed() => {}
                    () = session.execute_commands() => {}
                }
            });
            // If the session is being closed, its commands are dropped.
            drop(spawned);
        }
        Ok(())
    }

    async fn execute_commands(&self) {
        while let Some(command) = self.commands.first() {
            self.session.turns_before().await;
            if !self.commands.remove(&command.id) {
                continue;
            }
            self.send_ephemeral(CHANGED, json!({}));
            let (name, args) = command.text.split_once(' ').unwrap_or((&command.text, ""));
            let name = name.trim_start_matches('/');
            if self.has_command(name) {
                let _answer = self.execute_command(name, args).await;
                continue;
            }
            if name == COMPACT {
                // The events of the session report a compaction, and a failure leaves the conversation unchanged.
                let _compacted = self.session.compact().await;
                continue;
            }
            let request = self.pending.add();
            let id = request.id().to_owned();
            let data = json!({ "requestId": id, "command": command.text });
            self.send_ephemeral("command.queued", data);
            let result = request.answer().await.unwrap_or_default();
            self.send_ephemeral("command.completed", json!({ "requestId": id }));
            if result["stopProcessingQueue"] == true {
                self.commands.pause();
                return;
            }
        }
    }

    fn has_command(&self, name: &str) -> bool {
        let commands = self.client_commands();
        commands.iter().any(|known| known["name"] == *name)
    }

    /// Lets a client execute one of its commands. Returns the answer of the protocol.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request; the client may still execute the command.
    pub(crate) async fn execute_command(&self, name: &str, args: &str) -> Value {
        if !self.has_command(name) {
            return json!({ "error": format!("no client has the command /{name}") });
        }
        let request = self.pending.add();
        let id = request.id().to_owned();
        let data = json!({
            "requestId": id,
            "command": format!("/{name} {args}").trim_end(),
            "commandName": name,
            "args": args,
        });
        self.send_ephemeral("command.execute", data);
        let answer = tokio::select! {
            answer = request.answer() => answer,
            () = self.session.closed() => None,
        };
        self.send_ephemeral("command.completed", json!({ "requestId": id }));
        match answer {
            Some(Value::String(error)) => json!({ "error": error }),
            Some(_) => json!({}),
            None => json!({ "error": "the session was closed" }),
        }
    }
}
