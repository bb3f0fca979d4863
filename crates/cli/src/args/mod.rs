//! The command line.

mod aliases;
mod command_line;
mod command_traits;
mod config;
#[cfg(feature = "copilot")]
mod copilot;
mod demo;
mod doctor;
mod execution;
mod help_end;
mod init;
mod mcp;
mod permission;
mod prompt;
mod remote;
mod serve;
mod serve_access;
mod store;
mod tasks;
mod traces;
mod variables;
#[cfg(feature = "nats")]
mod worker;

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::str::FromStr;

use allstop_core::HumanDuration;
use allstop_core::turn::StopPolicy;
use allstop_session::FollowUp;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::short_id::LAST;

pub(crate) use command_line::{command, parse};
pub(crate) use config::{ConfigAction, ConfigArgs, ConfigShowArgs};
#[cfg(feature = "copilot")]
pub(crate) use copilot::CopilotArgs;
pub(crate) use demo::DemoArgs;
pub(crate) use doctor::DoctorArgs;
pub(crate) use execution::{ExecutionArgs, NatsArgs, TaskAgent};
pub(crate) use init::InitArgs;
pub(crate) use mcp::{McpAction, McpAddArgs, McpArgs};
pub(crate) use permission::PermissionArgs;
pub(crate) use prompt::{PromptArgs, STDIN};
pub(crate) use remote::{PsArgs, ReceiptArgs, StopArgs, WatchArgs};
pub(crate) use serve::{EndpointArgs, ServeArgs};
pub(crate) use store::{StoreAction, StoreCommandArgs};
pub(crate) use tasks::{SERVER_DEFAULT, TasksArgs, TasksCommand};
pub(crate) use traces::TraceArgs;
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
    Mcp(McpArgs),
    /// Print the JSON Schema of the output of a command, of scripts or of the configuration
    Schema(SchemaArgs),
    /// Print a manual page: allstop man run | man -l -
    Man(ManArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
}

const RUN_HELP: &str = "\
Stopping:
  Ctrl-C stops the run: work is asked to end, and after the grace period it is ended by force. A receipt lists the \
stopped work and the work that still runs. A second Ctrl-C uses force at once. SIGTERM and SIGHUP stop with the cause `shutdown`. \
The process exits at most one second after the grace period.

Exit codes:
  0 completed · 1 error · 2 usage error · 3 step limit · 4 turn limit · 5 budget · 6 guardrail · 7 loop · \
8 denied calls, with --fail-on-denied · 124 timeout · 130 cancelled · 141 the reader of --stream-json is gone · 143 SIGTERM · 129 SIGHUP

Examples:
  allstop \"What does this repository do?\"
  allstop run --yes fix the tests --then \"now commit it\"
  allstop run --model gpt-5-mini \"What does this repository do?\"
  allstop run --base-url http://127.0.0.1:8080/v1 --model my-model \"Fix the tests\"
  allstop run --model script:replies.yaml --json \"hello\" | jq .receipt
  allstop run --image shot.png \"Explain the error on this page\"
  git diff | allstop run --yes - ";

const CHAT_HELP: &str = "\
Keys:
  Enter sends · Alt-Enter or Ctrl-J: a new line · Up, Down: earlier input
  Escape or Ctrl-C stops the turn and shows the receipt; a second Ctrl-C uses force. At the prompt Ctrl-C clears the \
line. Ctrl-C or Ctrl-D on an empty line leaves the chat.
  A message that is sent while a turn runs follows `--policy`; /help lists the commands.

Without a terminal each line of standard input is one message. The messages run one after the other.

Exit codes:
  0 the user left the chat · 1 error · 2 usage error · 143 SIGTERM · 129 SIGHUP; without a terminal as `run`

Examples:
  allstop chat --model openai::gpt-5-mini
  allstop chat --policy steer \"Fix the tests\"
  allstop sessions resume EGE6SJCE  (the end of an id, as `sessions list` shows it)
  printf 'hello\\nand again\\n' | allstop chat --model script:replies.yaml ";

#[derive(Debug, Clone, Args)]
pub(crate) struct ChatArgs {
    /// The first message, with or without quotes
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Vec<String>,
    #[command(flatten)]
    pub(crate) session: SessionChoiceArgs,
    /// Choose the session to continue from a list
    #[arg(long, conflicts_with_all = ["session", "continues"], help_heading = "Session")]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) with: ChatWith,
    /// Run `init` first if no model is known; set for the command line without a command
    #[arg(long, hide = true)]
    pub(crate) or_init: bool,
}

/// Choice of the session to continue. Without these flags, the command creates a new session.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Session")]
pub(crate) struct SessionChoiceArgs {
    /// Session to continue: its id, the end or beginning of the id, its number in the list, or `last`
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Continue the most recently active session
    #[arg(long = "continue", conflicts_with = "session")]
    pub(crate) continues: bool,
}

impl ChatArgs {
    /// The first message.
    pub(crate) fn first_message(&self) -> Option<String> {
        (!self.prompt.is_empty()).then(|| self.prompt.join(" "))
    }
}

impl SessionChoiceArgs {
    /// Name of the session to continue; `None` if the command creates a new session.
    pub(crate) fn named(&self) -> Option<&str> {
        let last = self.continues.then_some(LAST);
        self.session.as_deref().or(last)
    }
}

/// Flags that `chat` and `sessions resume` share.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChatWith {
    /// Policy for a message sent while a turn runs [default: steer, or the last choice]
    #[arg(long, value_name = "POLICY", value_parser = policies())]
    pub(crate) policy: Option<FollowUp>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Time that a stop waits before it uses force [default: 2s]
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        help_heading = "Limits"
    )]
    pub(crate) grace: Option<HumanDuration>,
    /// Maximum steps per turn [default: 50]
    #[arg(long, value_name = "N", value_parser = at_least_one::<NonZeroU32>, help_heading = "Limits")]
    pub(crate) max_steps: Option<NonZeroU32>,
    /// Result of a stopped turn in the conversation [default: keep]
    #[arg(long, value_name = "POLICY", help_heading = "Limits", value_parser = stop_policies())]
    pub(crate) on_stop: Option<StopPolicy>,
    #[command(flatten)]
    pub(crate) permissions: PermissionArgs,
    /// Keep background work running when the chat ends: `ps` lists it, `stop` stops it
    #[arg(long, help_heading = "Background work")]
    pub(crate) keep_background: bool,
    #[command(flatten)]
    pub(crate) traces: TraceArgs,
    // These flags are accepted only to reject them with a helpful message.
    #[arg(long, hide = true)]
    pub(crate) json: bool,
    #[arg(long, hide = true)]
    pub(crate) stream_json: bool,
}

fn policies() -> impl TypedValueParser<Value = FollowUp> {
    let policies = FollowUp::ALL.map(|policy| {
        PossibleValue::new(policy.as_str()).help(match policy {
            FollowUp::Reject => "Reject the message",
            FollowUp::Enqueue => "Queue the message until the turn ends",
            FollowUp::Interrupt => {
                "Stop the turn and keep its completed steps; then start a turn with the message"
            }
            FollowUp::Replace => "Stop the turn and undo it; then start a turn with the message",
            FollowUp::Steer => "Send the message to the running turn, before its next step",
        })
    });
    PossibleValuesParser::new(policies).try_map(|name| name.parse::<FollowUp>())
}

fn stop_policies() -> impl TypedValueParser<Value = StopPolicy> {
    let policies = [StopPolicy::Rollback, StopPolicy::Keep];
    let values = policies.map(|policy| {
        PossibleValue::new(policy.as_str()).help(match policy {
            StopPolicy::Rollback => {
                "Nothing: the conversation returns to its state before the turn"
            }
            StopPolicy::Keep => "The message, the completed steps, and a marker for the stop",
        })
    });
    PossibleValuesParser::new(values).map(move |name| {
        let mut policies = policies.into_iter();
        policies
            .find(|policy| policy.as_str() == name)
            .unwrap_or_default()
    })
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) prompts: PromptArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) permissions: PermissionArgs,
    /// Exit with code 8 if the run completes although calls were denied
    #[arg(long, help_heading = "Permissions")]
    pub(crate) fail_on_denied: bool,
    #[command(flatten)]
    pub(crate) background: BackgroundArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// JSON schema that the final answer must match; standard output is then only the JSON of the answer
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output_schema: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) files: OutputFileArgs,
    #[command(flatten)]
    pub(crate) traces: TraceArgs,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Model name as its provider spells it (`gpt-5-mini`, `claude-…`, `ollama::qwen3`), or `script:FILE` (built in:
    /// `script:demo`) [default: the model of the provider whose key is set, if exactly one is]
    #[arg(long, value_name = "NAME", env = "ALLSTOP_MODEL")]
    pub(crate) model: Option<String>,
    /// URL of an OpenAI-compatible server (llama.cpp, Ollama, vLLM); `--model` is then the model name on that server
    #[arg(long, value_name = "URL", env = "ALLSTOP_BASE_URL")]
    pub(crate) base_url: Option<String>,
    /// Record the model's answers to a script for `--model script:FILE`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// The configuration file [default: ~/.config/allstop/allstop.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "ALLSTOP_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Handling of the settings of the working directory: `.allstop.toml`, commands, skills and agents
    #[arg(
        long,
        value_name = "USE",
        env = "ALLSTOP_PROJECT_CONFIG",
        default_value = "ask"
    )]
    pub(crate) project_config: ProjectConfigChoice,
    #[command(flatten)]
    pub(crate) prompt: InstructionArgs,
}

/// Use of a project's configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProjectConfigChoice {
    /// Ask before the first use, and after each change; without a terminal, use it only if it is already trusted
    #[default]
    Ask,
    /// Use it for this command without asking
    Trust,
    /// Ignore it
    Ignore,
}

impl ProjectConfigChoice {
    /// Value on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Trust => "trust",
            Self::Ignore => "ignore",
        }
    }
}

/// Flags of the system prompt.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Instructions")]
pub(crate) struct InstructionArgs {
    /// File that replaces the default system prompt (`allstop config show --prompt` prints the prompt)
    #[arg(long, value_name = "FILE", env = "ALLSTOP_SYSTEM")]
    pub(crate) system: Option<PathBuf>,
    /// Omit the project's instructions: AGENTS.md, from the repository's root down to the working directory
    #[arg(long)]
    pub(crate) no_project_instructions: bool,
}

impl ModelArgs {
    /// True if a flag or its environment variable chooses the model. A continued session then uses this model, even if
    /// the session remembers another one.
    pub(crate) fn chooses_model(&self) -> bool {
        self.model.is_some()
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Session")]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    pub(crate) choice: SessionChoiceArgs,
    /// Wait up to this time while another process has the session open [default: 0s]
    #[arg(long, value_name = "TIME")]
    pub(crate) wait_session: Option<HumanDuration>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    #[cfg_attr(
        feature = "nats",
        doc = "Session database file; for `serve`, `worker` and `workers` also NATS servers (`nats://HOST:PORT,…`)"
    )]
    #[cfg_attr(not(feature = "nats"), doc = "Session database file")]
    /// [default: ~/.local/share/allstop/store.db]
    #[arg(long, value_name = "PATH", env = "ALLSTOP_STORE", global = true)]
    pub(crate) store: Option<PathBuf>,
}

/// Parses a deadline. Zero is an error: such a deadline passes before the command can read anything.
fn deadline(text: &str) -> Result<HumanDuration, String> {
    longer_than_zero("a deadline", text)
}

/// Parses an age. Zero is an error: it would cover everything.
fn age(text: &str) -> Result<HumanDuration, String> {
    longer_than_zero("an age", text)
}

fn longer_than_zero(name: &str, text: &str) -> Result<HumanDuration, String> {
    let duration: HumanDuration = text.parse().map_err(|error| format!("{error}"))?;
    if duration.0.is_zero() {
        return Err(format!("{name} must be longer than 0"));
    }
    Ok(duration)
}

/// Parses a number that is not 0.
fn at_least_one<T: FromStr>(text: &str) -> Result<T, String> {
    let number = text.parse();
    number.map_err(|_| "expected a whole number, 1 or more".to_owned())
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Time limit of the whole run: 500ms, 1.5s, 1m30s, 8h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = deadline)]
    pub(crate) timeout: Option<HumanDuration>,
    /// Time that a stop waits before it uses force [default: 2s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) grace: Option<HumanDuration>,
    /// Maximum steps per turn [default: 50]
    #[arg(long, value_name = "N", value_parser = at_least_one::<NonZeroU32>)]
    pub(crate) max_steps: Option<NonZeroU32>,
    /// Maximum turns of the session
    #[arg(long, value_name = "N", value_parser = at_least_one::<NonZeroU32>)]
    pub(crate) max_turns: Option<NonZeroU32>,
    /// Token budget for the run (input + output)
    #[arg(long, value_name = "N", value_parser = at_least_one::<NonZeroU64>)]
    pub(crate) max_budget_tokens: Option<NonZeroU64>,
    /// Result of a stopped turn in the conversation [default: rollback]
    #[arg(long, value_name = "POLICY", value_parser = stop_policies())]
    pub(crate) on_stop: Option<StopPolicy>,
}

#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Background work")]
#[group(multiple = false)]
pub(crate) struct BackgroundArgs {
    /// Wait for background work at the end, instead of stopping it
    #[arg(long)]
    pub(crate) wait_background: bool,
    /// Keep background work running at the end: `ps` lists it, `stop` stops it
    #[arg(long)]
    pub(crate) keep_background: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
#[group(multiple = false)]
pub(crate) struct OutputArgs {
    /// Print one JSON object at the end, for every outcome except a usage error
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one line of JSON for each event; the last line is the object of `--json`
    #[arg(long)]
    pub(crate) stream_json: bool,
}

/// Files for output that a pipe may lose.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputFileArgs {
    /// Print only errors, and questions to a user at the terminal, on standard error
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Write standard output to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write the receipt to this file, as JSON. A run without a receipt leaves no file
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(subcommand)]
    pub(crate) command: SessionsAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsAction {
    #[command(flatten)]
    Look(SessionsCommand),
    /// Continue a session in chat
    #[command(after_help = CHAT_HELP)]
    Resume(Box<ResumeArgs>),
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions, the newest first. Commands accept the number in place of the id: `sessions resume 2`
    List {
        /// Print all sessions as JSON
        #[arg(long)]
        json: bool,
        /// Number of sessions shown [default: 20; with --json all]
        #[arg(long, value_name = "N", value_parser = at_least_one::<NonZeroU32>)]
        limit: Option<NonZeroU32>,
        /// Show all sessions
        #[arg(long, conflicts_with = "limit")]
        all: bool,
    },
    /// Show a session: its turns with their ends, its conversation, and the work that still runs
    Show {
        /// The id or a part of it, `last`, or the number in the list
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Also show the receipts and the results of calls
        #[arg(long)]
        full: bool,
    },
    /// Print the conversation of a session as Markdown, or as JSON
    #[command(after_help = "Examples:\n  \
        allstop sessions export last > conversation.md\n  \
        allstop sessions export 2 --json                   # one object, see `allstop schema transcript`\n\n\
        Exit codes: 0 printed; 1 the session or the store cannot be read; 2 usage error")]
    Export {
        /// The id or a part of it, `last`, or the number in the list
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove sessions that no process has open and whose background work has ended
    #[command(visible_alias = "remove")]
    Rm {
        /// The ids or parts of them, `last`, or numbers in the list
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Remove old sessions. Sessions that a process has open stay, and sessions with running background work
    #[command(after_help = "Examples:\n  \
        allstop sessions prune --older-than 30d --dry-run  # show what would be removed\n  \
        allstop sessions prune --keep 100                  # keep the 100 most recently active sessions")]
    Prune {
        #[command(flatten)]
        limits: PruneLimits,
        /// Only show the sessions that would be removed
        #[arg(long)]
        dry_run: bool,
    },
}

impl SessionsCommand {
    /// True if the command prints JSON.
    pub(crate) fn wants_json(&self) -> bool {
        matches!(
            self,
            Self::List { json: true, .. }
                | Self::Show { json: true, .. }
                | Self::Export { json: true, .. }
        )
    }
}

/// The sessions that stay.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct PruneLimits {
    /// Remove sessions whose last activity is longer ago, for example 30d
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub(crate) older_than: Option<HumanDuration>,
    /// Keep the N most recently active sessions, and remove the others. With --older-than, only remove the others that
    /// are also old
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The id or a part of it, `last`, or the number in the list; without an id you choose from the list
    pub(crate) id: Option<String>,
    /// The next message, with or without quotes
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Vec<String>,
    #[command(flatten)]
    pub(crate) with: ChatWith,
}

impl ResumeArgs {
    /// Converts to the arguments of a chat on this session.
    pub(crate) fn into_chat(self, store: StoreArgs) -> ChatArgs {
        ChatArgs {
            prompt: self.prompt,
            resume: self.id.is_none(),
            session: SessionChoiceArgs {
                session: self.id,
                continues: false,
            },
            store,
            with: self.with,
            or_init: false,
        }
    }
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
