//! `allstop chat`.

use std::num::NonZeroU32;

use allstop_core::turn::StopPolicy;
use allstop_session::FollowUp;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::grace::GraceArgs;
use super::model::ModelArgs;
use super::permission::PermissionArgs;
use super::session_choice::SessionChoiceArgs;
use super::store::StoreArgs;
use super::traces::TraceArgs;
use super::values::{at_least_one, stop_policies};

pub(super) const CHAT_HELP: &str = "\
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

impl ChatArgs {
    /// The first message.
    pub(crate) fn first_message(&self) -> Option<String> {
        (!self.prompt.is_empty()).then(|| self.prompt.join(" "))
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
    #[command(flatten)]
    pub(crate) grace: GraceArgs,
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
