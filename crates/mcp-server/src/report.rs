//! Reports about commands, as the tools return them.

use std::fmt::Write as _;
use std::sync::Arc;

use allstop_core::receipt::{EndProof, ItemState, ReceiptItem};
use allstop_core::{Cause, CauseKind, Receipt};
use allstop_task::{Task, TaskState};
use allstop_tools::command_name;
use schemars::JsonSchema;
use serde::Serialize;

use crate::arguments::CommandArguments;
use crate::result::{COMMAND_ITEM, CommandResult, LeftProcess};

/// Maximum number of processes that the text of a report names. The structured content contains all of them.
const NAMED_MAX: usize = 5;

/// State of a command. `failed`: the command did not start, or the reason of its end is not known.
// The variants have no descriptions, because each would be in the list of the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CommandState {
    Running,
    Exited,
    TimedOut,
    Stopped,
    Failed,
}

/// Report about a command: its state, its output and its receipt.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CommandReport {
    /// Id of the command.
    pub(crate) id: Arc<str>,
    /// The command.
    pub(crate) command: Arc<str>,
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
    /// The commands. `receipt` lists the work that a stop would end.
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
        // A command that left nothing was not stopped.
        result.receipt = result.receipt.filter(|receipt| !receipt.items().is_empty());
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
            reason: why.or_else(|| cause.map(reason_of)),
            result,
        }
    }

    /// True if the command has exited by itself, or runs.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self.state, CommandState::Exited | CommandState::Running)
    }

    /// True if the receipt proves that no work of the command is left.
    pub(crate) fn has_ended(&self) -> bool {
        self.result.receipt.as_ref().is_none_or(Receipt::quiet)
    }

    /// Text for a model: the output, and then a line about each other fact.
    pub(crate) fn text(&self) -> String {
        let mut text = self.result.output.clone();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let state = self.state_text();
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
        if let Some(receipt) = &self.result.receipt {
            text.extend(receipt_text(receipt).map(|line| format!("\n[{line}]")));
        }
        text
    }

    /// Short line about an ended command, for lists.
    pub(crate) fn line(&self) -> String {
        let command = command_name(&self.command);
        format!("{} `{command}` {}", self.id, self.state_text())
    }

    fn state_text(&self) -> String {
        match self.state {
            CommandState::Running => "runs".to_owned(),
            CommandState::Exited => self.exit_text(),
            CommandState::TimedOut => "was stopped by its time limit".to_owned(),
            CommandState::Stopped => "was stopped".to_owned(),
            CommandState::Failed => "failed".to_owned(),
        }
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

/// Reason of a stop, for a model.
fn reason_of(cause: &Cause) -> String {
    let detail = cause.detail.as_ref().map(ToString::to_string);
    detail.unwrap_or_else(|| cause.to_string())
}

/// Line about the result of a stop, or about the work that a stop would end.
fn receipt_text(receipt: &Receipt) -> Option<String> {
    let covered = receipt.items().iter();
    let mut covered = covered.filter(|item| !item.state.is_outside_extent());
    let left: Vec<_> = covered
        .clone()
        .filter(|item| item.state.breaks_quiet())
        .collect();
    if receipt.is_preview() {
        let work: Vec<_> = covered.filter_map(processes_of).collect();
        return (!work.is_empty()).then(|| format!("a stop ends {}", work.join(", ")));
    }
    if !left.is_empty() {
        let work: Vec<_> = left.into_iter().filter_map(processes_of).collect();
        return Some(format!(
            "not all of its work has ended: {}",
            work.join(", ")
        ));
    }
    let is_searched = covered.any(|item| {
        let ItemState::Stopped { evidence, .. } = &item.state else {
            return false;
        };
        evidence.proof() == Some(EndProof::ProcessGroupEmpty)
    });
    let evidence = if is_searched {
        "as far as a search can find"
    } else {
        "verified"
    };
    Some(format!("nothing of it is left running; {evidence}"))
}

/// The processes of an item, by the first line of their command; `None` for work of the server itself.
fn processes_of(item: &ReceiptItem) -> Option<String> {
    let name = item.label.as_ref()?;
    let pids: Vec<_> = item
        .processes
        .iter()
        .map(|process| process.pid.to_string())
        .collect();
    let pids = if pids.is_empty() {
        String::new()
    } else {
        format!(" (process {})", pids.join(", "))
    };
    Some(format!("`{name}`{pids}"))
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
