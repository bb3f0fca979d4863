//! Text of an artifact while the executor writes it, for display. The text is kept in memory and never stored.
//!
//! Invariants:
//! 1. The writer never waits for a subscriber. The feed of a task keeps one copy of the text, and each subscriber keeps
//!    only its position in the text. A subscriber that is slow therefore receives longer pieces, but not more pieces.
//! 2. A piece is delivered only to a subscriber that has received all durable records, only while the task is
//!    `working`, and not after a stop of the execution.
//! 3. The durable record of the artifact, or the end of the execution, removes the text before a subscriber can receive
//!    this record. No piece therefore follows the record.

use std::sync::Arc;

use allstop_scope::Scope;
use serde::{Deserialize, Serialize};

use crate::model::{TaskRecord, TaskState};

/// Maximum size of a live text in bytes, so that long answers do not fill the memory. A longer text ends here, and
/// subscribers receive the whole text with the artifact.
const LIVE_BYTES_MAX: usize = 256 * 1024;

/// The live text of a task, if there is one.
#[derive(Debug, Default)]
pub(crate) struct LiveText {
    current: Option<LiveArtifact>,
    /// Number of texts so far. It distinguishes a text from the text that it replaces.
    texts: u64,
}

#[derive(Debug)]
struct LiveArtifact {
    id: Arc<str>,
    name: Option<Arc<str>>,
    text: String,
    /// False after a piece was dropped because of the limit. Later pieces would then leave a gap.
    is_open: bool,
    scope: Scope,
}

/// Position of a subscriber in the live texts of a task.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct LiveCursor {
    text: u64,
    bytes: usize,
}

impl LiveText {
    pub(crate) fn restart(&mut self, id: Arc<str>, name: Option<Arc<str>>, scope: Scope) {
        self.texts += 1;
        self.current = Some(LiveArtifact {
            id,
            name,
            text: String::new(),
            is_open: true,
            scope,
        });
    }

    pub(crate) fn push(&mut self, text: &str) {
        if let Some(live) = &mut self.current {
            live.is_open &= live.text.len() + text.len() <= LIVE_BYTES_MAX;
            if live.is_open {
                live.text.push_str(text);
            }
        }
    }

    /// Removes the text if this record makes it obsolete.
    pub(crate) fn note(&mut self, record: &TaskRecord) {
        let is_replaced = match record {
            TaskRecord::ArtifactUpdated { update, .. } => {
                let live = self.current.as_ref();
                live.is_some_and(|live| live.id == update.artifact.id)
            }
            record => record.ends_execution(),
        };
        if is_replaced {
            self.current = None;
        }
    }

    /// The text after a position; `None` if there is no more text.
    pub(crate) fn after(&self, cursor: LiveCursor) -> Option<(LivePiece, LiveCursor)> {
        let live = self.current.as_ref()?;
        let begin = if cursor.text == self.texts {
            cursor.bytes
        } else {
            0
        };
        let text = live.text.get(begin..)?;
        if text.is_empty() || live.scope.is_stopped() {
            return None;
        }
        let piece = LivePiece {
            artifact_id: Arc::clone(&live.id),
            name: live.name.clone(),
            text: text.into(),
            append: begin > 0,
        };
        let cursor = LiveCursor {
            text: self.texts,
            bytes: live.text.len(),
        };
        Some((piece, cursor))
    }
}

/// A piece of the text of an artifact that the executor writes at present. It is for display only: the durable artifact
/// replaces all pieces with its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivePiece {
    /// Id of the artifact.
    pub artifact_id: Arc<str>,
    /// Name of the artifact, for people.
    pub name: Option<Arc<str>>,
    /// The text. Empty only in a piece that withdraws the earlier pieces, because the task has ended without the
    /// artifact.
    pub text: Arc<str>,
    /// True if the text continues the previous piece of this artifact. If false, the text replaces all earlier pieces.
    pub append: bool,
}

/// True if pieces may be delivered in this state.
pub(crate) fn is_shown_in(state: TaskState) -> bool {
    state == TaskState::Working
}
