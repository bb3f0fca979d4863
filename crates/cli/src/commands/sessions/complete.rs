//! Sessions for a shell that completes a command: a line each, the newest first.

use allstop_core::terminal_text::{escape, is_unsafe};

use super::find::newest_first;
use super::list_row::SessionRow;
use super::open;
use crate::args::StoreArgs;
use crate::error::CliError;
use crate::host::ProcessHost;

/// Sessions offered: a person waits for them, and looks through them.
const SESSIONS_MAX: usize = 20;
/// Letters of a first prompt: together with an id less than a row.
const PROMPT_LETTERS_MAX: usize = 60;

/// The short id of each session, a tab, and the beginning of its first prompt.
///
/// # Errors
/// If the store cannot be read.
///
/// # Cancel safety
/// Dropping it leaves nothing behind.
pub(crate) async fn session_completions(
    store: &StoreArgs,
    host: &ProcessHost,
) -> Result<String, CliError> {
    let (log, _outputs) = open(store, host).await?;
    let failed = |error: &dyn std::fmt::Display| CliError::failure(error.to_string());
    let sessions = newest_first(&*log).await.map_err(|error| failed(&error))?;
    let mut lines = String::new();
    for session in sessions.iter().take(SESSIONS_MAX) {
        let row = SessionRow::read(&*log, 0, session).await;
        // A damaged session is no reason to offer no other.
        let Ok(row) = row else { continue };
        let prompt = row.first_prompt.as_deref().unwrap_or_default();
        let prompt = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
        let prompt: String = prompt.chars().take(PROMPT_LETTERS_MAX).collect();
        lines.extend([row.handle, "\t", &*escape(&prompt, is_unsafe), "\n"]);
    }
    Ok(lines)
}
