//! Arguments that choose the session to continue.

use clap::Args;

use crate::short_id::LAST;

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

impl SessionChoiceArgs {
    /// Name of the session to continue; `None` if the command creates a new session.
    pub(crate) fn named(&self) -> Option<&str> {
        let last = self.continues.then_some(LAST);
        self.session.as_deref().or(last)
    }
}
