//! Output of a command on sessions.

use allstop_core::Timestamp;
use allstop_terminal::{Style, Styled};

/// Style and width of the output, and the current time.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// Colours and letters.
    pub(super) style: Style,
    /// Columns.
    pub(super) width: usize,
    /// Now.
    pub(super) now: Timestamp,
}

/// Output of a command.
#[derive(Debug)]
pub(super) enum Printed {
    /// For programs.
    Json(String),
    /// For people.
    Words(Styled),
}
