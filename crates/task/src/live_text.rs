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
use std::time::Duration;

use allstop_log::Version;
use allstop_scope::Scope;
use tokio::time::{Instant, sleep_until};

use crate::error::ReadTaskError;
use crate::feed::TaskFeed;
use crate::model::{TaskRecord, TaskState};
use crate::subscription::{SubscriptionItem, TaskSubscription};

/// Maximum size of a live text in bytes, so that long answers do not fill the memory. A longer text ends here, and
/// subscribers receive the whole text with the artifact.
const LIVE_BYTES_MAX: usize = 256 * 1024;

/// Minimum time between two pieces for one subscriber: 20 pieces per second look continuous to a person.
const PIECE_INTERVAL: Duration = Duration::from_millis(50);

/// Writes the live text of an artifact. Clones write to the same text.
#[derive(Debug, Clone)]
pub struct LiveTextWriter {
    feed: Arc<TaskFeed>,
    scope: Scope,
}

impl LiveTextWriter {
    pub(crate) fn new(feed: Arc<TaskFeed>, scope: Scope) -> Self {
        Self { feed, scope }
    }

    /// Begins a new text for this artifact. The first piece of the new text replaces the pieces of the previous text.
    pub fn restart(&self, id: impl Into<Arc<str>>, name: Option<Arc<str>>) {
        let scope = self.scope.clone();
        self.feed
            .set_live(|state| state.restart(id.into(), name, scope));
    }

    /// Adds a piece of text. Without a text to continue, the piece is dropped: before the first
    /// [`restart`](Self::restart), and after the artifact is durable.
    pub fn push(&self, text: &str) {
        self.feed.set_live(|state| state.push(text));
    }
}

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
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LiveCursor {
    text: u64,
    bytes: usize,
}

impl LiveText {
    fn restart(&mut self, id: Arc<str>, name: Option<Arc<str>>, scope: Scope) {
        self.texts += 1;
        self.current = Some(LiveArtifact {
            id,
            name,
            text: String::new(),
            is_open: true,
            scope,
        });
    }

    fn push(&mut self, text: &str) {
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
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Item of a [`LiveSubscription`].
#[derive(Debug, Clone)]
pub enum LiveItem {
    /// The snapshot, or a durable record.
    Durable(SubscriptionItem),
    /// A piece of text, at most 20 per second.
    Piece(LivePiece),
}

/// A subscription to the records of a task and, between them, to its live text. In a cluster there is no live text,
/// because another process may run the task.
#[derive(Debug)]
pub struct LiveSubscription {
    records: TaskSubscription,
    cursor: LiveCursor,
    next_piece_at: Instant,
    /// The last delivered piece, until the durable artifact replaces it.
    shown: Option<LivePiece>,
    /// Record that follows the withdrawal of the pieces.
    held: Option<SubscriptionItem>,
}

impl LiveSubscription {
    pub(crate) fn new(records: TaskSubscription) -> Self {
        Self {
            records,
            cursor: LiveCursor::default(),
            next_piece_at: Instant::now(),
            shown: None,
            held: None,
        }
    }

    /// The next item; `None` after a record that ends an execution. Durable items come in the order of their numbers,
    /// and none is missing. Pieces may be missing.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call skips no item.
    pub async fn next(&mut self) -> Option<Result<LiveItem, ReadTaskError>> {
        if let Some(held) = self.held.take() {
            return Some(Ok(LiveItem::Durable(held)));
        }
        let feed = self.records.feed().map(Arc::clone);
        let (records_until, cursor) = (self.records.cursor(), self.cursor);
        let piece = next_piece(feed, records_until, cursor, self.next_piece_at);
        tokio::select! {
            biased;
            item = self.records.next() => match item? {
                Ok(item) => Some(Ok(self.durable(item))),
                Err(error) => Some(Err(error)),
            },
            (piece, cursor) = piece => {
                self.cursor = cursor;
                self.next_piece_at = Instant::now() + PIECE_INTERVAL;
                self.shown = Some(piece.clone());
                Some(Ok(LiveItem::Piece(piece)))
            }
        }
    }

    /// Returns a durable item. If the task has ended without the artifact of the delivered pieces, a piece without text
    /// comes first.
    fn durable(&mut self, item: SubscriptionItem) -> LiveItem {
        match &item {
            SubscriptionItem::Update(update) => match &*update.record {
                TaskRecord::ArtifactUpdated { update, .. } => {
                    let artifact = &update.artifact.id;
                    self.shown.take_if(|shown| shown.artifact_id == *artifact);
                }
                TaskRecord::TaskEnded { .. } => {
                    if let Some(shown) = self.shown.take() {
                        self.held = Some(item);
                        return LiveItem::Piece(LivePiece {
                            text: Arc::default(),
                            append: false,
                            ..shown
                        });
                    }
                }
                _ => {}
            },
            SubscriptionItem::Snapshot(..) => {}
        }
        LiveItem::Durable(item)
    }
}

async fn next_piece(
    feed: Option<Arc<TaskFeed>>,
    records_until: Version,
    cursor: LiveCursor,
    at: Instant,
) -> (LivePiece, LiveCursor) {
    let Some(feed) = feed else {
        return std::future::pending().await;
    };
    sleep_until(at).await;
    feed.read_live_after(records_until, cursor).await
}

/// True if pieces may be delivered in this state.
pub(crate) fn is_shown_in(state: TaskState) -> bool {
    state == TaskState::Working
}
