//! Reports about commands, as the tools return them.

use std::fmt::Write as _;
use std::sync::Arc;

use allstop_core::CauseKind;
use allstop_core::Receipt;
use allstop_core::receipt::{EndProof, ItemState};
use allstop_task::{Task, TaskState};
use schemars::JsonSchema;
use serde::Serialize;

use crate::arguments::CommandArguments;
use crate::result::{COMMAND_ITEM, CommandResult, LeftProcess};

/// Maximum number of processes that the text of a report names. The structured content contains all of them.
const NAMED_MAX: usize = 5;

/// State of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CommandState {
    /// The command runs.
    Running,
    /// The command has exited by itself.
    Exited,
    /// Its time limit has stopped it.
    TimedOut,
    /// A stop has ended it.
    Stopped,
    /// The command did not start, or the reason of its end is not known.
    Failed,
}

/// Report about a command: its state, its output and its receipt.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CommandReport {
    /// Id of the command, for `stop`, `preview` and `receipt`.
    pub(crate) id: Arc<str>,
    /// The command.
    pub(crate) command: Arc<str>,
    /// State of the command.
    pub(crate) state: CommandState,
    #[serde(flatten)]
    pub(crate) result: CommandResult,
    /// Reason of a failure or of a stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// Reports about the commands that a stop would end now.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PreviewReport {
    /// The commands. `receipt` lists the work that a stop of the command would cover.
    pub(crate) commands: Vec<CommandReport>,
}

impl CommandReport {
    /// Report about a task, without the output of a command that runs.
    pub(crate) fn of_task(task: &Task) -> Self {
        let mut artifacts = task.artifacts.iter();
        let stored = artifacts.find_map(|artifact| CommandResult::of_artifact(artifact));
        let mut result = stored.unwrap_or_default();
        let ending = &task.ending;
        if let Some(receipt) = &ending.receipt {
            result.verified = result.verified.or_else(|| proof_in(receipt));
            result.receipt = Some(Receipt::clone(receipt));
        }
        let cause = ending.cause.as_ref();
        let why = ending.error.as_ref().map(ToString::to_string);
        let message = task.history.first();
        let arguments = message.and_then(|message| CommandArguments::of_message(message));
        Self {
            id: task.id.as_str().into(),
            command: arguments
                .map(|arguments| arguments.command)
                .unwrap_or_default(),
            state: match task.status.state {
                TaskState::Completed => CommandState::Exited,
                TaskState::Canceled => CommandState::Stopped,
                state if !state.is_terminal() => CommandState::Running,
                _ if cause.is_some_and(|cause| cause.kind == CauseKind::Deadline) => {
                    CommandState::TimedOut
                }
                _ => CommandState::Failed,
            },
            reason: why.or_else(|| cause.map(ToString::to_string)),
            result,
        }
    }

    /// True if the command has exited by itself, or runs.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self.state, CommandState::Exited | CommandState::Running)
    }

    /// Text for a model: the output, and then a line about each other fact.
    pub(crate) fn text(&self) -> String {
        let mut text = self.result.output.clone();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let state = match self.state {
            CommandState::Running => "runs".to_owned(),
            CommandState::Exited => self.exit_text(),
            CommandState::TimedOut => "was stopped by its time limit".to_owned(),
            CommandState::Stopped => "was stopped".to_owned(),
            CommandState::Failed => "failed".to_owned(),
        };
        let reason = self.reason.as_ref().map(|why| format!(": {why}"));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[command {} {state}{}]",
            self.id,
            reason.unwrap_or_default()
        );
        if !self.result.left_processes.is_empty() {
            let _ = write!(text, "\n[{}]", left_text(&self.result.left_processes));
        }
        if let Some(note) = &self.result.note {
            let _ = write!(text, "\n[{note}]");
        }
        let receipt = self.result.receipt.as_ref();
        if let Some(receipt) = receipt.filter(|receipt| !receipt.items().is_empty()) {
            let _ = write!(text, "\n[{receipt}]");
        }
        text
    }

    fn exit_text(&self) -> String {
        match (self.result.exit_code, self.result.signal) {
            (Some(code), _) => format!("exited with code {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "exited with an unknown code".to_owned(),
        }
    }
}

impl PreviewReport {
    /// Text for a model.
    pub(crate) fn text(&self) -> String {
        if self.commands.is_empty() {
            return "no command runs".to_owned();
        }
        let texts = self.commands.iter();
        let texts = texts.map(|report| format!("$ {}\n{}", report.command, report.text()));
        let texts: Vec<String> = texts.collect();
        texts.join("\n\n")
    }
}

/// Proof in a receipt that no process of the command is left. A stop that uses force can end a task before the task has
/// stored the proof.
fn proof_in(receipt: &Receipt) -> Option<EndProof> {
    let item = receipt
        .items()
        .iter()
        .find(|item| *item.id == *COMMAND_ITEM);
    match &item?.state {
        ItemState::Stopped { evidence, .. } => evidence.proof().filter(|proof| {
            matches!(
                proof,
                EndProof::ProcessTreeEmpty | EndProof::ProcessGroupEmpty
            )
        }),
        _ => None,
    }
}

/// Sentence about processes that were left and stopped.
fn left_text(left: &[LeftProcess]) -> String {
    let named = left.iter().take(NAMED_MAX);
    let named = named.map(|process| format!("{} `{}`", process.pid, process.command_line));
    let mut named: Vec<_> = named.collect();
    if let more @ 1.. = left.len().saturating_sub(NAMED_MAX) {
        named.push(format!("and {more} more"));
    }
    let (count, were) = match left.len() {
        1 => ("1 process".to_owned(), "was"),
        n => (format!("{n} processes"), "were"),
    };
    format!(
        "{count} still ran after the exit and {were} stopped: {}",
        named.join(", ")
    )
}
