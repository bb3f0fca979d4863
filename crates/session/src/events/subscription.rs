//! One subscriber's place in a session: a cursor on its log, and the live events beside it.

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

/// Records that are read at a time to catch up.
const READ_LEN: usize = 256;

/// One subscriber's place in a session. It costs the session nothing when it is slow, and misses nothing durable.
#[derive(Debug)]
pub struct Subscription {
    id: SessionId,
    log: Arc<dyn Log>,
    live: broadcast::Receiver<SessionEvent>,
    /// The last durable record that was given out.
    last: Version,
    /// Up to where the log is to be read before anything live is given out.
    catch_up: Option<Version>,
    ready: VecDeque<SessionEvent>,
    /// Questions that were open when this began: they were given out first.
    asked: Vec<QuestionId>,
    /// The message of the turn that replayed records belong to.
    replayed: Option<MessageId>,
}

impl Subscription {
    /// `after`: the last record that is not wanted. `until`: where the log was when `live` began. `open`: what was asked
    /// before that and has no answer.
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

    /// The next event: durable ones each once and in order. `None` when the session is closed and all was given out.
    ///
    /// # Errors
    /// If the log cannot be read. Asked again, it tries again.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Result<Option<SessionEvent>, LogError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if let Some(until) = self.catch_up {
                self.read_on(until).await?;
                continue;
            }
            match self.live.recv().await {
                // Asked while this began: it was given out.
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
                    // One that was replayed is not given out again; one beyond a gap is read with what lies before.
                    self.catch_up = (version > self.last).then_some(version);
                }
                Err(RecvError::Lagged(count)) => {
                    self.ready.push_back(SessionEvent::missed(count));
                    // Whatever is in the log by now: a record may be among what was missed.
                    self.catch_up = Some(Version(u64::MAX));
                }
                Err(RecvError::Closed) => return Ok(None),
            }
        }
    }

    async fn read_on(&mut self, until: Version) -> Result<(), LogError> {
        let stream = stream_of(&self.id);
        let records = self.log.read(&stream, self.last.next(), READ_LEN).await?;
        if records.is_empty() {
            self.catch_up = None;
        }
        for (version, bytes) in records {
            self.last = version;
            // One that this version cannot read is somebody else's to understand; the numbers show the gap.
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
        _ => None,
    }
}
