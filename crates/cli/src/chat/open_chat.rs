//! An open chat, and its input.

use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::Receipt;
use allstop_runtime::System;
use allstop_session::{Session, Subscription};
use allstop_terminal::{InputHistory, InputReader, TerminalDevice};
use allstop_tools::mcp::McpStatusEvents;
use allstop_tools::permission::ModeSwitch;

use super::view::ChatView;
use crate::host::ProcessHost;
use crate::shell_command::SameFlags;
use allstop_remote::TerminalSession;

/// An open chat.
pub(super) struct OpenChat<'a> {
    pub(super) host: &'a ProcessHost,
    pub(super) system: Arc<System>,
    pub(super) session: Session,
    pub(super) events: Subscription,
    /// Status events of MCP servers.
    pub(super) news: McpStatusEvents,
    /// Stops from other terminals.
    pub(super) remote: TerminalSession,
    pub(super) view: ChatView,
    pub(super) mode: ModeSwitch,
    pub(super) keeps_background: bool,
    /// Configuration file that keeps the user's choices; `None` if the home folder is unknown.
    pub(super) config_file: Option<PathBuf>,
    /// Flags of the command that resumes the session.
    pub(super) flags: SameFlags,
    /// Flags of commands on the session's store.
    pub(super) store_flags: SameFlags,
    /// Flag that answers all permission questions.
    pub(super) answers: Option<&'static str>,
}

impl OpenChat<'_> {
    /// Shows the receipt of a stop here and in all terminals that watch this session.
    pub(super) fn show_receipt(&self, receipt: &Arc<Receipt>) {
        self.view.receipt(receipt);
        self.remote.announcer().receipt(receipt);
    }
}

/// Input of a chat at a terminal.
pub(super) struct ChatInput {
    pub(super) device: TerminalDevice,
    /// Reader of the terminal, if it exists already.
    pub(super) reader: Option<InputReader>,
    /// Lines that were typed in earlier chats.
    pub(super) history: InputHistory,
    /// The first message, from the command line.
    pub(super) first: Option<String>,
}
