//! Output of a command on sessions.

use allstop_core::Timestamp;
use allstop_terminal::{Style, Styled};

/// Style and width of the output, and the current time.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// Colours and character set.
    pub(super) style: Style,
    /// Width in columns.
    pub(super) width: usize,
    /// Current time.
    pub(super) now: Timestamp,
}

/// Output of a command.
#[derive(Debug)]
pub(super) enum Printed {
    /// Output for programs.
    Json(String),
    /// Output for people.
    Text(Styled),
}
