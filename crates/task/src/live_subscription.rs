//! A subscription to the records of a task and to its live text; see [`crate::live_text`].

use std::sync::Arc;
use std::time::Duration;

use allstop_log::Version;
use tokio::time::{Instant, sleep_until};

use crate::cluster::RemoteLiveText;
use crate::error::ReadTaskError;
use crate::feed::TaskFeed;
use crate::live_text::{LiveCursor, LivePiece};
use crate::model::TaskRecord;
use crate::subscription::{SubscriptionItem, TaskSubscription};

/// Minimum time between two pieces for one subscriber: 20 pieces per second look continuous to a person.
const PIECE_INTERVAL: Duration = Duration::from_millis(50);

/// Item of a [`LiveSubscription`].
#[derive(Debug, Clone)]
pub enum LiveItem {
    /// The snapshot, or a durable record.
    Durable(SubscriptionItem),
    /// A piece of text, at most 20 per second.
    Piece(LivePiece),
}

/// A subscription to the records of a task and, between them, to its live text. In a cluster, the text comes from the
/// worker of the task.
#[derive(Debug)]
pub struct LiveSubscription {
    records: TaskSubscription,
    /// Source of the text in a cluster.
    remote: Option<RemoteLiveText>,
    cursor: LiveCursor,
    next_piece_at: Instant,
    /// The last delivered piece, until the durable artifact replaces it.
    shown: Option<LivePiece>,
    /// Record that follows the withdrawal of the pieces.
    held: Option<SubscriptionItem>,
}

impl LiveSubscription {
    pub(crate) fn new(mut records: TaskSubscription) -> Self {
        Self {
            remote: records.take_remote(),
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
        let remote = self.remote.as_ref();
        let piece = next_piece(feed, remote, records_until, cursor, self.next_piece_at);
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
        if self
            .remote
            .as_mut()
            .zip(record_of(&item))
            .is_some_and(|(remote, record)| remote.note(record))
        {
            self.cursor = LiveCursor::default();
        }
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
    remote: Option<&RemoteLiveText>,
    records_until: Version,
    cursor: LiveCursor,
    at: Instant,
) -> (LivePiece, LiveCursor) {
    sleep_until(at).await;
    match (feed, remote) {
        (Some(feed), _) => feed.read_live_after(records_until, cursor).await,
        (None, Some(remote)) => remote.after(records_until, cursor).await,
        (None, None) => std::future::pending().await,
    }
}

impl TaskSubscription {
    /// Also subscribes to the live text of the task.
    pub fn with_live_text(self) -> LiveSubscription {
        LiveSubscription::new(self)
    }
}

fn record_of(item: &SubscriptionItem) -> Option<&TaskRecord> {
    match item {
        SubscriptionItem::Update(update) => Some(&update.record),
        SubscriptionItem::Snapshot(..) => None,
    }
}
