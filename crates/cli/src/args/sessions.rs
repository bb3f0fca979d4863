//! `allstop sessions`, and the choice of a session.

use std::num::NonZeroU32;

use allstop_core::HumanDuration;
use clap::{Args, Subcommand};

use super::chat::{CHAT_HELP, ChatArgs, ChatWith};
use super::session_choice::SessionChoiceArgs;
use super::store::StoreArgs;
use super::values::{age, at_least_one};

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
