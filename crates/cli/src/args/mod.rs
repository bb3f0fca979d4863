//! The command line.

mod aliases;
mod chat;
mod command_line;
mod command_traits;
mod config;
#[cfg(feature = "copilot")]
mod copilot;
mod demo;
mod doctor;
mod execution;
mod grace;
mod help_end;
mod init;
mod mcp;
#[cfg(feature = "mcp-server")]
mod mcp_serve;
mod model;
mod permission;
mod prompt;
mod remote;
mod run;
mod serve;
mod serve_access;
mod session_choice;
mod sessions;
mod store;
mod tasks;
mod traces;
mod values;
mod variables;
#[cfg(feature = "nats")]
mod worker;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use chat::CHAT_HELP;
use run::RUN_HELP;

pub(crate) use chat::{ChatArgs, ChatWith};
pub(crate) use command_line::{command, parse};
pub(crate) use config::{ConfigAction, ConfigArgs, ConfigShowArgs};
#[cfg(feature = "copilot")]
pub(crate) use copilot::CopilotArgs;
pub(crate) use demo::DemoArgs;
pub(crate) use doctor::DoctorArgs;
pub(crate) use execution::{ExecutionArgs, NatsArgs, TaskAgent};
pub(crate) use init::InitArgs;
pub(crate) use mcp::{McpAction, McpAddArgs, McpArgs};
#[cfg(feature = "mcp-server")]
pub(crate) use mcp_serve::McpServeArgs;
#[cfg(test)]
pub(crate) use model::InstructionArgs;
pub(crate) use model::{ModelArgs, ProjectConfigChoice};
pub(crate) use permission::PermissionArgs;
pub(crate) use prompt::STDIN;
pub(crate) use remote::{PsArgs, ReceiptArgs, StopArgs, WatchArgs};
pub(crate) use run::{BackgroundArgs, RunArgs};
pub(crate) use serve::{EndpointArgs, ServeArgs};
pub(crate) use serve_access::ServeAccessArgs;
pub(crate) use sessions::{PruneLimits, SessionsAction, SessionsArgs, SessionsCommand};
pub(crate) use store::{StoreAction, StoreArgs, StoreCommandArgs};
pub(crate) use tasks::{SERVER_DEFAULT, TasksArgs, TasksCommand};
pub(crate) use traces::{TRACE_FILE, TraceArgs};
pub(crate) use variables::run_variables;
#[cfg(feature = "nats")]
pub(crate) use worker::{WorkerArgs, WorkersAction, WorkersArgs};

/// Runs AI agents that can be stopped at any moment. Every stop returns a receipt: the stopped work, the work that
/// still runs, and the proof of each.
#[derive(Debug, Parser)]
#[command(name = "allstop", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Change to this folder first; relative paths in other flags then start there
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub(crate) folder: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a prompt and exit; `allstop "…"` and `allstop -p "…"` do the same
    #[command(after_help = RUN_HELP, mut_args(variables::attach))]
    Run(Box<RunArgs>),
    /// Chat with an agent in the terminal: stop it, interrupt it, keep work running; `allstop` alone does the same
    #[command(after_help = CHAT_HELP)]
    Chat(Box<ChatArgs>),
    /// List running work: the open sessions of this user with their calls and background work, and work that was left
    /// running
    #[command(after_help = remote::PS_HELP)]
    Ps(PsArgs),
    /// Stop a session from any terminal, and show the receipt
    #[command(after_help = remote::STOP_HELP)]
    Stop(StopArgs),
    /// Watch a session that runs in another terminal, and answer its questions
    #[command(after_help = remote::WATCH_HELP)]
    Watch(WatchArgs),
    /// Show the receipt of the last stop of a session
    Receipt(ReceiptArgs),
    /// Serve an agent's tasks over A2A, until a signal
    #[command(
        after_help = serve::SERVE_HELP,
        mut_arg("deny", |deny| deny.help(serve::CLIENT_DENY_HELP))
    )]
    Serve(Box<ServeArgs>),
    /// Run tasks that the servers of a cluster accept, until a signal
    #[cfg(feature = "nats")]
    #[command(
        after_help = worker::WORKER_HELP,
        mut_arg("deny", |deny| deny.help(serve::CLIENT_DENY_HELP))
    )]
    Worker(Box<WorkerArgs>),
    /// List and drain the workers of a cluster
    #[cfg(feature = "nats")]
    #[command(after_help = worker::WORKERS_HELP)]
    Workers(WorkersArgs),
    /// Serve sessions to programs that use a GitHub Copilot SDK
    #[cfg(feature = "copilot")]
    #[command(after_help = copilot::COPILOT_HELP)]
    Copilot(Box<CopilotArgs>),
    /// List, show, watch and stop the tasks of a server
    #[command(after_help = tasks::TASKS_HELP)]
    Tasks(TasksArgs),
    /// Stop a turn that resists every gentle stop, show the receipt, and prove it
    #[cfg_attr(feature = "nats", command(about = demo::ABOUT_WITH_CLUSTER))]
    #[command(after_help = demo::DEMO_HELP)]
    Demo(DemoArgs),
    /// List, show, resume and remove sessions
    Sessions(SessionsArgs),
    /// Check, copy, compact and repair the store in a file
    #[command(after_help = store::STORE_HELP)]
    Store(StoreCommandArgs),
    /// Show the effective configuration, and the system prompt
    Config(ConfigArgs),
    /// Write a configuration file: asks for the model and the permissions
    Init(InitArgs),
    /// Check the model, the store, stopping, MCP servers and the terminal
    #[command(after_help = doctor::DOCTOR_HELP)]
    Doctor(Box<DoctorArgs>),
    /// List, add, remove and test MCP servers
    #[cfg_attr(feature = "mcp-server", command(about = mcp_serve::MCP_ABOUT))]
    Mcp(Box<McpArgs>),
    /// Print the JSON Schema of the output of a command, of scripts or of the configuration
    Schema(SchemaArgs),
    /// Print a manual page: allstop man run | man -l -
    Man(ManArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(required_unless_present = "sessions")]
    pub(crate) shell: Option<clap_complete::Shell>,
    /// Print the ids of sessions; the completion script runs this
    #[arg(long, conflicts_with = "shell")]
    pub(crate) sessions: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Command of the page [default: allstop itself]
    #[arg(conflicts_with = "folder")]
    pub(crate) command: Vec<String>,
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// The schema; without a name, all names are listed
    #[arg(value_enum)]
    pub(crate) name: Option<crate::commands::schema::SchemaName>,
}
