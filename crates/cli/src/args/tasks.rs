//! Flags of `allstop tasks`.

use std::num::NonZeroUsize;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};

use super::values::at_least_one;

pub(super) const TASKS_HELP: &str = "\
The server is `allstop serve`, or any other A2A 1.0 server with the HTTP+JSON binding. The environment variable \
ALLSTOP_TOKEN holds the token, so that the process list does not show it.

Exit codes:
  list, show, preview: 0 · stop: 0 if all work of the task has ended, verified; otherwise 1
  watch: 0 completed · 1 failed or rejected · 130 the task was stopped, or Ctrl-C, which leaves the task running
         1 also if the server does not answer for 30 s; the task may still run
  all: 1 error · 2 usage error

Examples:
  allstop tasks list --state working
  allstop tasks watch EGE6SJCE  (the end of an id, as `tasks list` shows it)
  allstop tasks stop EGE6SJCE --reason \"wrong branch\"
  ALLSTOP_TOKEN=… allstop tasks --server https://agents.example.com list ";

/// Default address of the server.
pub(crate) const SERVER_DEFAULT: &str = "http://127.0.0.1:8080";

#[derive(Debug, Args)]
pub(crate) struct TasksArgs {
    /// Address of the server
    #[arg(
        long,
        value_name = "URL",
        env = "ALLSTOP_SERVER",
        default_value = SERVER_DEFAULT,
        global = true
    )]
    pub(crate) server: String,
    #[command(subcommand)]
    pub(crate) command: TasksCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TasksCommand {
    /// List the newest tasks
    List {
        /// List only the tasks of this context
        #[arg(long, value_name = "ID")]
        context: Option<String>,
        /// List only the tasks in this state
        #[arg(long, value_name = "STATE", value_parser = states())]
        state: Option<String>,
        /// Maximum number of tasks
        #[arg(long, value_name = "N", value_parser = at_least_one::<NonZeroUsize>, default_value = "20")]
        limit: NonZeroUsize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a task: its messages, its artifacts and its receipt
    Show(TaskArgs),
    /// Follow a task until it ends; reconnects without gaps
    Watch(TaskArgs),
    /// Stop a task, and show the receipt: the stopped work, the work that still runs, and the proof of each
    Stop {
        #[command(flatten)]
        task: TaskArgs,
        /// Reason, for the receipt
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Dry run: show the work that a stop would end
    Preview(TaskArgs),
}

impl TasksCommand {
    /// True if the command prints JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Self::List { json, .. } => *json,
            Self::Show(task)
            | Self::Watch(task)
            | Self::Preview(task)
            | Self::Stop { task, .. } => task.json,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    /// The id or a part of it
    pub(crate) id: String,
    /// Print JSON; `watch`: a line for each event
    #[arg(long)]
    pub(crate) json: bool,
}

/// Converts a task state from the command line to its name in the A2A protocol.
fn states() -> impl TypedValueParser<Value = String> {
    let states = [
        "submitted",
        "working",
        "input-required",
        "auth-required",
        "completed",
        "failed",
        "canceled",
        "rejected",
    ];
    PossibleValuesParser::new(states)
        .map(|state| format!("TASK_STATE_{}", state.to_uppercase().replace('-', "_")))
}
