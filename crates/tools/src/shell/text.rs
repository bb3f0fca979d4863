//! What the model is told about a command.

use std::error::Error;
use std::sync::Arc;

use allstop_scope::process::ExitInfo;

/// The longest name of a command in receipts and lists, in characters: a line of a terminal.
const NAME_CHARS_MAX: usize = 80;

/// A command as a name: its first line, bounded, without control characters.
pub(super) fn name_of(command: &str) -> Arc<str> {
    let line = command.trim().lines().next().unwrap_or_default();
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut name: String = line.chars().take(NAME_CHARS_MAX).map(plain).collect();
    if name.len() < command.trim().len() {
        name.push('…');
    }
    name.into()
}

/// How a command ended.
pub(crate) fn exit_text(exit: ExitInfo) -> String {
    match exit {
        ExitInfo::Code(code) => format!("exit code {code}"),
        ExitInfo::Signal(signal) => format!("killed by signal {signal}"),
        ExitInfo::Unknown => "exit code unknown".to_owned(),
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += ": ";
        text += &error.to_string();
        cause = error.source();
    }
    text
}
