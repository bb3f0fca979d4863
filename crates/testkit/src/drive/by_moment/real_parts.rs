//! The real parts of one run: a server, a store and processes. Runs do not share these parts. This module also observes
//! the machine on which the parts run.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use allstop_agent::{Agent, Deadlines, SessionBackground, Settings};
use allstop_core::message::{Arguments, ToolResult};
use allstop_core::receipt::{EndProof, ItemState};
use allstop_core::turn::StopPolicy;
use allstop_core::{Extent, Message, Receipt, SessionId, Timestamp, ToolCall};
use allstop_model::{ProviderModel, ProviderOptions};
use allstop_process::ContainmentChoice;
use allstop_scope::{RootOptions, Scope, ScopeOptions};
use allstop_tools::{OutputFolder, ShellConfig, ShellTool, ToolRegistry};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::round::SLACK;
use crate::observe::{MachineSnapshot, NEXT_MESSAGE, ObservedEffect};
use crate::openai_server::{OpenAiServer, Received, ServerAnswer};

/// Grace of these runs, in which stopped work may end by itself. The grace is long enough for a command that reacts to
/// SIGTERM, and shorter than the run time of a command that ignores SIGTERM.
pub(super) const GRACE: Duration = Duration::from_millis(60);

/// Time between two pieces of an answer.
const PIECE: Duration = Duration::from_millis(4);

/// The user's messages, one per turn.
pub(super) const PROMPTS: [&str; 2] = ["Do it.", "And again."];

/// Command that runs in the background and does not end by itself.
pub(super) const BACKGROUND: &str = "sleep 600";

/// The real parts of one run. When this value is dropped, the folder of the run is removed and the server is closed.
#[derive(Debug)]
pub(super) struct RealParts {
    folder: TempDir,
    pub(super) server: OpenAiServer,
}

impl RealParts {
    /// # Panics
    /// Panics if the system provides no folder or no port.
    pub(super) fn new() -> Self {
        Self {
            folder: folder().expect("a temporary folder"),
            server: OpenAiServer::deciding(|_, request| answer(request)),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Value of the environment variable [`MARK`] that distinguishes the processes of this run from all others.
    pub(super) fn mark(&self) -> String {
        self.folder().to_string_lossy().into_owned()
    }

    /// An agent that uses the server and runs real commands.
    ///
    /// # Panics
    /// Panics if the server's address is invalid.
    pub(super) fn agent(
        &self,
        background: &Arc<SessionBackground>,
        deadline: Option<Duration>,
        stop_policy: StopPolicy,
    ) -> Agent {
        let options = ProviderOptions::default().base_url(self.server.url());
        let model = ProviderModel::new("any", options).expect("a server on the loopback");
        let output = Arc::new(OutputFolder::new(self.folder().join("output")));
        let shell = ShellConfig::new(self.folder(), output)
            .env(MARK, self.mark())
            .containment(ContainmentChoice::GroupAndMarker);
        let mut tools = ToolRegistry::new();
        tools
            .register(Arc::new(ShellTool::new(shell, Arc::clone(background) as _)))
            .expect("it is the only one");
        let settings = Settings::default()
            .stop_policy(stop_policy)
            .deadlines(Deadlines::default().run(deadline));
        Agent::new(Arc::new(model))
            .tools(tools)
            .settings(settings)
            .build()
    }

    /// Effects of the commands, as the commands have recorded them: `begins ID` and `ends ID`.
    pub(super) fn effects(&self) -> Vec<ObservedEffect> {
        let trail = std::fs::read_to_string(self.folder().join("trail")).unwrap_or_default();
        let words = trail.lines().filter_map(|line| line.split_once(' '));
        words
            .map(|(what, call)| ObservedEffect {
                call: call.into(),
                what: what.into(),
            })
            .collect()
    }

    /// Requests that the server received: tool calls and their results, as they were sent over the network.
    pub(super) fn requests(&self) -> Vec<Vec<Arc<Message>>> {
        let requests = self.server.requests();
        let messages = |request: &Received| request.messages().iter().map(from_wire).collect();
        requests.iter().map(messages).collect()
    }
}

/// Converts a message of a received request. Keeps only the content that is needed to check the order of calls and
/// results.
fn from_wire(message: &Value) -> Arc<Message> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let content = text(&message["content"]).into();
    Arc::new(match message["role"].as_str() {
        Some("assistant") => {
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            let calls = calls.map(|call| ToolCall {
                id: text(&call["id"]).into(),
                name: text(&call["function"]["name"]).into(),
                arguments: Arguments::Malformed("".into()),
            });
            Message::Assistant {
                text: content,
                tool_calls: calls.collect(),
            }
        }
        Some("tool") => Message::Tool(ToolResult {
            call_id: text(&message["tool_call_id"]).into(),
            content,
            is_error: false,
            images: allstop_core::Images::default(),
        }),
        _ => Message::user(content),
    })
}

/// A folder in memory if the system has one. On a disk that other programs keep busy for a second, a turn correctly
/// reports that its store has not answered. Such a run could check nothing else.
fn folder() -> std::io::Result<TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

/// The answer to a request. The step of the turn is the number of answers since the user's last message.
fn answer(request: &Received) -> ServerAnswer {
    let messages = request.messages();
    let is_user = |message: &Value| message["role"] == "user";
    let last_user = messages.iter().rposition(is_user).unwrap_or_default();
    let (before, turn) = messages.split_at(last_user);
    let answered = turn.iter().filter(|message| message["role"] == "assistant");
    let step = answered.count();
    // Ids differ from turn to turn, as the ids of providers do.
    let number = before.iter().filter(|message| is_user(message)).count();
    let id = |call: u32| format!("call_{number}_{step}_{call}");
    let text = turn.first().map(|message| message["content"].to_string());
    if text.is_some_and(|text| text.contains(NEXT_MESSAGE)) {
        return ServerAnswer::text("Yes.");
    }
    let shell = |answer: ServerAnswer, call: u32, command: &str, background: bool| {
        let id = id(call);
        let command = format!("echo begins {id} >> trail; {command}; echo ends {id} >> trail");
        let arguments = json!({"command": command, "background": background}).to_string();
        answer.tool_call(&id, "shell", &arguments)
    };
    match step {
        0 => {
            let answer = ServerAnswer::text("I do two things, side by side.").every(PIECE);
            let answer = shell(answer, 1, "sleep 0.04", false);
            // The child of this command keeps the output of the command open. Both processes ignore SIGTERM.
            shell(
                answer,
                2,
                "trap '' TERM; sleep 0.08 & wait; sleep 0.02",
                false,
            )
        }
        1 if number == 0 => shell(ServerAnswer::stream(), 1, BACKGROUND, true),
        _ => ServerAnswer::text("That is all of it.").every(PIECE),
    }
}

/// Scopes of a process with one session.
pub(super) fn scopes() -> (Scope, Scope) {
    let mut options = RootOptions::single_runtime();
    options.grace = GRACE;
    let root = Scope::root("process", options);
    let session = root.child("session/random", ScopeOptions::default());
    (root, session.expect("nothing is stopped yet"))
}

pub(super) fn session_id() -> SessionId {
    "random".into()
}

pub(super) fn now() -> Timestamp {
    SystemTime::now().into()
}

/// Name of the environment variable that marks the processes of one run, and all processes that they start.
pub(super) const MARK: &str = "ALLSTOP_EXPLORE_RUN";

/// Observes the processes and connections after the answer to a stop has arrived.
pub(super) async fn observe_machine(
    parts: &RealParts,
    extent: Extent,
    receipt: Option<Arc<Receipt>>,
) -> MachineSnapshot {
    let (background, running) = running(&parts.mark())
        .into_iter()
        .partition(|line| line.contains(BACKGROUND));
    let items = receipt.iter().flat_map(|receipt| receipt.items());
    let closed_a_connection = items.into_iter().any(|item| match &item.state {
        // If the call was not sent yet, its connection may still be open, as an idle connection of the previous call.
        ItemState::Stopped { evidence, .. } => evidence.proof() == Some(EndProof::SocketClosed),
        _ => false,
    });
    let connections = if closed_a_connection {
        // The server notices the closed connection a moment later.
        let seen = parts
            .server
            .wait_until(SLACK, |seen| seen.open() == 0)
            .await;
        seen.map_or_else(|seen| seen.open(), |_| 0)
    } else {
        0
    };
    MachineSnapshot {
        extent,
        receipt,
        running,
        background,
        connections,
    }
}

/// The command lines of the living processes with this mark. A zombie is not in the list, because it has no
/// environment.
pub(super) fn running(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| variable == wanted.as_bytes())
        })
        .filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            // A process can end after its environment was read. Then it has no command line.
            (!line.is_empty()).then(|| line.trim_end().to_owned())
        })
        .collect()
}

/// The files below this folder that the current process holds open.
pub(super) fn open_files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|target| target.starts_with(folder))
        .map(|target| target.to_string_lossy().into_owned())
        .collect()
}
