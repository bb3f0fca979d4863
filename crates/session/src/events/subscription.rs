//! Subscription to a session: a cursor on its log, and the live events.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_core::ids::QuestionId;
use allstop_core::record::SessionRecord;
use allstop_core::turn::TurnEvent;
use allstop_core::{MessageId, SessionId, TurnNumber};
use allstop_log::session::{decode, stream_of};
use allstop_log::{Log, LogError, Version};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::event::{SessionEvent, SessionEventKind};

/// Records per read of the log.
const READ_LEN: usize = 256;

/// Subscription to a session. A slow subscriber does not delay the session and misses no durable event.
#[derive(Debug)]
pub struct Subscription {
    id: SessionId,
    log: Arc<dyn Log>,
    live: broadcast::Receiver<SessionEvent>,
    /// Last delivered durable record.
    last: Version,
    /// Version up to which the subscription must read the log before it delivers live events.
    catch_up: Option<Version>,
    ready: VecDeque<SessionEvent>,
    /// Questions that were open at the start. They are delivered first.
    asked: Vec<QuestionId>,
    /// Message that caused the turn of the replayed records.
    replayed: Option<MessageId>,
}

impl Subscription {
    /// Creates a subscription. `after` is the last record to skip. `until` is the version of the log when `live` began,
    /// and `open` contains the questions that were open at that time.
    pub(crate) fn new(
        id: SessionId,
        log: Arc<dyn Log>,
        live: broadcast::Receiver<SessionEvent>,
        after: Version,
        until: Version,
        open: Vec<SessionEvent>,
    ) -> Self {
        Self {
            id,
            log,
            live,
            last: after,
            catch_up: (after < until).then_some(until),
            asked: open.iter().filter_map(question_of).cloned().collect(),
            ready: open.into(),
            replayed: None,
        }
    }

    /// Returns the next event, or `None` after the last event. Durable events arrive exactly once and in order.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read. The next call tries again.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Result<Option<SessionEvent>, LogError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if let Some(until) = self.catch_up {
                self.read_records(until).await?;
                continue;
            }
            match self.live.recv().await {
                // This question was open at the start and is already delivered.
                Ok(event) if question_of(&event).is_some_and(|id| self.asked.contains(id)) => {}
                Ok(event) => {
                    let version = match &event.kind {
                        SessionEventKind::Recorded { version, .. } => *version,
                        _ => return Ok(Some(event)),
                    };
                    if version == self.last.next() {
                        self.last = version;
                        return Ok(Some(event));
                    }
                    // Skips a record that was already replayed. If records are missing before this record, all of them
                    // are read from the log.
                    self.catch_up = (version > self.last).then_some(version);
                }
                Err(RecvError::Lagged(count)) => {
                    self.ready.push_back(SessionEvent::missed(count));
                    // Catches up to the current end of the log, since the missed events may include records.
                    self.catch_up = Some(Version(u64::MAX));
                }
                Err(RecvError::Closed) => return Ok(None),
            }
        }
    }

    async fn read_records(&mut self, until: Version) -> Result<(), LogError> {
        let stream = stream_of(&self.id);
        let records = self.log.read(&stream, self.last.next(), READ_LEN).await?;
        if records.is_empty() {
            self.catch_up = None;
        }
        for (version, bytes) in records {
            self.last = version;
            // Skips a record that this version of Allstop cannot read; the record numbers show the gap.
            let Ok(Some(record)) = decode(&bytes) else {
                continue;
            };
            let event = self.replay(version, record);
            self.ready.push_back(event);
        }
        if self.last >= until {
            self.catch_up = None;
        }
        Ok(())
    }

    fn replay(&mut self, version: Version, record: SessionRecord) -> SessionEvent {
        let mut turn: Option<TurnNumber> = TurnEvent::of(&record).map(|(turn, _)| turn);
        if let SessionRecord::TurnStarted {
            turn: number,
            message,
            ..
        } = &record
        {
            turn = Some(*number);
            self.replayed.clone_from(message);
        }
        SessionEvent {
            turn,
            message: turn.and(self.replayed.clone()),
            kind: SessionEventKind::Recorded {
                version,
                record: Arc::new(record),
            },
        }
    }
}

fn question_of(event: &SessionEvent) -> Option<&QuestionId> {
    match &event.kind {
        SessionEventKind::PermissionAsked(question) => Some(&question.id),
        SessionEventKind::ServerAsked(question) => Some(&question.id),
        _ => None,
    }
}
