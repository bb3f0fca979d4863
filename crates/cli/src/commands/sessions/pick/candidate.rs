//! Session that the user can choose.

use allstop_core::{SessionId, Timestamp};
use allstop_log::{Log, LogError, newest_sessions};

use super::super::list_row::SessionRow;

/// Maximum number of offered sessions, the newest in the store. The limit bounds the reading: each session is read from
/// its last compaction (summary of older turns) on. The user can name older sessions by id.
const CANDIDATES_MAX: usize = 100;

/// Session that the user can choose, as the list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionCandidate {
    pub(super) id: SessionId,
    /// Number in the list, from 1.
    pub(super) number: usize,
    /// The first prompt, in one line.
    pub(super) prompt: String,
    /// The end of the id, age, turns, model, folder, and notable states.
    pub(super) facts: Vec<String>,
}

impl SessionCandidate {
    /// Reads the newest sessions of a store.
    ///
    /// # Errors
    /// If the store fails. The facts of an unreadable session contain the problem instead.
    pub(crate) async fn read_all(log: &dyn Log, now: Timestamp) -> Result<Vec<Self>, LogError> {
        let sessions = newest_sessions(log).await?.into_iter();
        let mut candidates = Vec::new();
        for (place, session) in sessions.enumerate().take(CANDIDATES_MAX) {
            let row = SessionRow::read(log, place + 1, session).await?;
            let prompt = row.first_prompt.as_deref().unwrap_or_default();
            let mut facts = row.facts(now);
            facts.insert(0, row.handle.clone());
            facts.extend(row.state().into_iter().map(|(_, said)| said));
            candidates.push(Self {
                id: row.session_id.clone(),
                number: row.number,
                prompt: prompt.split_whitespace().collect::<Vec<_>>().join(" "),
                facts,
            });
        }
        Ok(candidates)
    }

    /// True if every word is in the prompt, the facts or the id. The words are in lower case.
    pub(super) fn has(&self, words: &[String]) -> bool {
        let text = format!("{} {} {}", self.prompt, self.facts.join(" "), self.id);
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word))
    }
}
