//! Sessions for shell completion: one line per session, the newest first.

use allstop_core::terminal_text::{escape, is_unsafe};
use allstop_log::newest_sessions;

use super::list_row::SessionRow;
use super::open;
use crate::args::StoreArgs;
use crate::error::CliError;
use crate::host::ProcessHost;

/// Maximum number of offered sessions. The number is small, because the user waits for the list and reads all of it.
const SESSIONS_MAX: usize = 20;
/// Maximum letters of a first prompt. A prompt of this length and an id fit into one row.
const PROMPT_LETTERS_MAX: usize = 60;

/// Returns a line for each session: its short id, a tab, and the beginning of its first prompt.
///
/// # Errors
/// If the store cannot be read.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn session_completions(
    store: &StoreArgs,
    host: &ProcessHost,
) -> Result<String, CliError> {
    let log = open(store, host).await?;
    let failed = |error: &dyn std::fmt::Display| CliError::failure(error.to_string());
    let sessions = newest_sessions(&*log).await;
    let sessions = sessions.map_err(|error| failed(&error))?;
    let mut lines = String::new();
    for session in sessions.into_iter().take(SESSIONS_MAX) {
        let row = SessionRow::read(&*log, 0, session).await;
        // A damaged session must not hide the other sessions.
        let Ok(row) = row else { continue };
        let prompt = row.first_prompt.as_deref().unwrap_or_default();
        let prompt = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
        let prompt: String = prompt.chars().take(PROMPT_LETTERS_MAX).collect();
        lines.extend([&*row.handle, "\t", &*escape(&prompt, is_unsafe), "\n"]);
    }
    Ok(lines)
}
