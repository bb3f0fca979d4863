//! `allstop run`.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use allstop_core::HumanDuration;
use allstop_core::turn::StopPolicy;
use clap::Args;

use super::grace::GraceArgs;
use super::model::ModelArgs;
use super::permission::PermissionArgs;
use super::prompt::PromptArgs;
use super::session_choice::SessionChoiceArgs;
use super::store::StoreArgs;
use super::traces::TraceArgs;
use super::values::{at_least_one, deadline, stop_policies};

pub(super) const RUN_HELP: &str = "\
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

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Time limit of the whole run: 500ms, 1.5s, 1m30s, 8h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = deadline)]
    pub(crate) timeout: Option<HumanDuration>,
    #[command(flatten)]
    pub(crate) grace: GraceArgs,
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
