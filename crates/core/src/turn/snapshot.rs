//! Snapshot of a session's state, from which a reader can start.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::receipt::Receipt;
use crate::session_settings::SessionSettings;
use crate::time::Timestamp;
use crate::turn::background_index::BackgroundIndex;
use crate::turn::conversation::Conversation;
use crate::turn::session_state::{SessionOpening, SessionState};
use crate::turn::summary::{RecordedWork, TurnSummary};
use crate::usage::Usage;

/// All data that later records depend on. The size of this data does not grow with the number of turns. The data
/// contains the conversation, the summary of the last turn, the receipt (the result) of the last stop, and some
/// background work. Of the background work, the data contains running work, work whose end no turn has reported to the
/// model yet, and the work that started last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSnapshot {
    session_id: SessionId,
    opened_at: Timestamp,
    folder: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settings: Option<Arc<SessionSettings>>,
    conversation: Conversation,
    metered: Usage,
    last_turn: Option<TurnSummary>,
    background: Vec<RecordedWork>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_receipt: Option<Arc<Receipt>>,
}

impl SessionState {
    /// Snapshot of the state between two turns. `None` if a turn is open, and before the first record.
    pub fn snapshot(&self) -> Option<SessionSnapshot> {
        let opened = self
            .opened
            .as_ref()
            .filter(|_| self.open_turn().is_none())?;
        let works = self.background();
        let last = works.last();
        let unreported_background: Vec<_> =
            self.unreported_background().map(|work| &work.id).collect();
        let is_needed = |work: &&RecordedWork| {
            work.ended.is_none()
                || unreported_background.contains(&&work.id)
                || last.is_some_and(|last| last.id == work.id)
        };
        Some(SessionSnapshot {
            session_id: opened.session_id.clone(),
            opened_at: opened.at,
            folder: Arc::clone(&opened.folder),
            settings: self.settings.clone(),
            conversation: Conversation::clone(self.conversation()),
            metered: self.metered(),
            last_turn: self.turns().last().cloned(),
            background: works.iter().filter(is_needed).cloned().collect(),
            last_receipt: self.last_receipt.clone(),
        })
    }
}

/// Restores the state. Of the turns, only the summary of the last one is restored.
impl From<SessionSnapshot> for SessionState {
    fn from(snapshot: SessionSnapshot) -> Self {
        Self {
            opened: Some(SessionOpening {
                session_id: snapshot.session_id,
                at: snapshot.opened_at,
                folder: snapshot.folder,
            }),
            settings: snapshot.settings,
            conversation: Arc::new(snapshot.conversation),
            metered: snapshot.metered,
            turns: snapshot.last_turn.into_iter().collect(),
            background: BackgroundIndex::from(snapshot.background),
            last_receipt: snapshot.last_receipt,
            ..Self::default()
        }
    }
}
