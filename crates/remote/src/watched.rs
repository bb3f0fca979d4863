//! Follows a session for its watchers, which are programs in other terminals that show the session. One task, the
//! follower, reads the events of the session and the announcements of the session's terminal. The follower sends both
//! to any number of watchers.
//!
//! Invariants:
//! 1. No component waits for a watcher. A slow watcher misses events and receives the number of missed events.
//! 2. A watcher first receives the state of the turn, then each later event that it does not miss. No event arrives
//!    twice, except a permission question that opens while the watch begins.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::AgentEvent;
use allstop_core::ids::QuestionId;
use allstop_core::image::text_with_images;
use allstop_core::record::SessionRecord;
use allstop_session::{LiveEvents, OpenQuestion, Session, SessionEvent, SessionEventKind};
use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc};

use crate::question::ShownQuestion;
use crate::turn_snapshot::{TurnFacts, TurnSnapshot};
use crate::watch_event::WatchEvent;

/// Maximum number of events that wait for a watcher. If more events arrive, the watcher misses the oldest ones. These
/// events are enough for a few seconds of an answer. More events could take hundreds of megabytes for a suspended
/// watcher, because an event can contain long output of a call.
const EVENTS_KEPT_MAX: usize = 256;

/// Maximum number of the terminal's announcements that wait for the follower. The follower never waits for a watcher.
pub(crate) const ANNOUNCEMENTS_MAX: usize = 256;

/// Maximum number of remembered answerers of permission questions. A new answerer displaces the oldest.
const ANSWERS_MAX: usize = 64;

/// A session and its watchers.
#[derive(Debug)]
pub(crate) struct WatchedSession {
    session: Session,
    /// True if a client holds the session, so no terminal announces the session's stops and receipts. Watchers then
    /// receive both from the session's own events.
    is_of_client: bool,
    state: Mutex<WatchState>,
    answered: Mutex<VecDeque<(QuestionId, String)>>,
}

#[derive(Debug)]
struct WatchState {
    snapshot: TurnSnapshot,
    /// Time of the last record. Before the first record, the time when the session was opened.
    active_at: Instant,
    /// `None` if there are no watchers. Most sessions of a server have no watchers, and a channel allocates all its
    /// memory when it is created.
    tx: Option<broadcast::Sender<Arc<WatchEvent>>>,
    is_closed: bool,
}

/// An announcement: a message of the session's terminal for watchers.
#[derive(Debug)]
pub(crate) enum Announcement {
    Broadcast(WatchEvent),
    /// The terminal sends no further announcements.
    Finish,
}

impl WatchedSession {
    pub(crate) fn new(session: Session, is_of_client: bool) -> Self {
        Self {
            session,
            is_of_client,
            state: Mutex::new(WatchState {
                snapshot: TurnSnapshot::default(),
                active_at: Instant::now(),
                tx: None,
                is_closed: false,
            }),
            answered: Mutex::default(),
        }
    }

    /// Returns the state of the running turn, and a receiver of the later events; `None` if the session is closed.
    pub(crate) fn attach(&self) -> Option<(Vec<WatchEvent>, broadcast::Receiver<Arc<WatchEvent>>)> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        let tx = state
            .tx
            .get_or_insert_with(|| broadcast::channel(EVENTS_KEPT_MAX).0);
        let rx = tx.subscribe();
        let mut events = state.snapshot.events(Instant::now());
        // A permission question that opens now may arrive twice, with the same id.
        let questions = self.session.questions().into_iter();
        events.extend(questions.map(|open| self.asked(&state.snapshot, open)));
        Some((events, rx))
    }

    /// Facts of the running turn.
    pub(crate) fn facts(&self) -> Option<TurnFacts> {
        self.state.lock().snapshot.facts(Instant::now())
    }

    /// Time since the last record of the session.
    pub(crate) fn quiet_for(&self) -> Duration {
        self.state.lock().active_at.elapsed()
    }

    /// Times since the start of pieces of work, by the ids that the work has in receipts of stops.
    pub(crate) fn ages<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Vec<Option<Duration>> {
        let (state, now) = (self.state.lock(), Instant::now());
        ids.map(|id| state.snapshot.age(id, now)).collect()
    }

    /// Remembers the answerer of a question, until [`ANSWERS_MAX`] later answers displace it.
    pub(crate) fn remember_answerer(&self, id: QuestionId, by: String) {
        let mut answered = self.answered.lock();
        if answered.len() == ANSWERS_MAX {
            answered.pop_front();
        }
        answered.push_back((id, by));
    }

    /// Forgets this answerer of a question, because another answer was first.
    pub(crate) fn forget_answerer(&self, id: &QuestionId, by: &str) {
        let mut answered = self.answered.lock();
        answered.retain(|(known, who)| known != id || who != by);
    }

    /// Name of the program that answered a question, if the answer did not come from the terminal of the session.
    pub(crate) fn answered_by(&self, id: &QuestionId) -> Option<String> {
        let answered = self.answered.lock();
        let mut answered = answered.iter().rev();
        Some(answered.find(|(known, _)| known == id)?.1.clone())
    }

    /// Follows a session of a terminal until the terminal finishes its announcements, and a session of a client until
    /// the session is closed.
    ///
    /// # Cancel safety
    /// After the future is dropped, watchers receive no further events.
    pub(crate) async fn follow(
        &self,
        mut events: LiveEvents,
        mut announcements: mpsc::Receiver<Announcement>,
    ) {
        let mut is_open = true;
        loop {
            tokio::select! {
                biased;
                event = events.next(), if is_open => match event {
                    Some(event) => self.event(&event),
                    None if self.is_of_client => break,
                    None => is_open = false,
                },
                announcement = announcements.recv() => {
                    // First sends the events that precede the announcement.
                    while let Some(event) = events.try_next() {
                        self.event(&event);
                    }
                    match announcement {
                        Some(Announcement::Broadcast(event)) => self.state.lock().send(event),
                        Some(Announcement::Finish) | None => break,
                    }
                }
            }
        }
        let mut state = self.state.lock();
        (state.is_closed, state.tx) = (true, None);
    }

    fn event(&self, event: &SessionEvent) {
        let mut state = self.state.lock();
        let now = Instant::now();
        let of_message = event.message.is_some();
        let watch_event = match &event.kind {
            SessionEventKind::Recorded { record, .. } => {
                state.snapshot.record(record, now);
                state.active_at = now;
                let receipt = receipt_of(record).filter(|_| self.is_of_client);
                receipt
                    .or_else(|| message_of(record))
                    .or_else(|| recorded_event(record, of_message))
            }
            SessionEventKind::Live(AgentEvent::StopHeard { cause }) if self.is_of_client => {
                let cause = cause.clone();
                Some(WatchEvent::StopHeard { cause })
            }
            SessionEventKind::Live(event) => {
                state.snapshot.live(event, now);
                let event = event.clone();
                Some(WatchEvent::Live { event, age_ms: 0 })
            }
            SessionEventKind::PermissionAsked(open) => {
                Some(self.asked(&state.snapshot, open.clone()))
            }
            SessionEventKind::PermissionAnswered { id, answer } => {
                Some(WatchEvent::QuestionClosed {
                    id: id.clone(),
                    answer: answer.clone().map(Into::into),
                    by: self.answered_by(id),
                })
            }
            // The chat at the terminal answers the questions of servers.
            SessionEventKind::ServerAsked(_) | SessionEventKind::ServerQuestionClosed { .. } => {
                None
            }
            SessionEventKind::LateAnswer { call_id, name } => {
                let (call_id, name) = (call_id.clone(), Arc::clone(name));
                Some(WatchEvent::LateAnswer { call_id, name })
            }
            SessionEventKind::AssistantIdle { running, .. } => {
                let running = running.clone();
                (!running.is_empty()).then_some(WatchEvent::InBackground { running })
            }
            SessionEventKind::Missed { count } => {
                state.snapshot.missed();
                Some(WatchEvent::Missed { count: *count })
            }
            _ => None,
        };
        if let Some(event) = watch_event {
            state.send(event);
        }
    }

    fn asked(&self, snapshot: &TurnSnapshot, open: OpenQuestion) -> WatchEvent {
        let label = |id: &_| snapshot.label(id);
        WatchEvent::Asked(ShownQuestion::of(open, &self.session, label))
    }
}

impl WatchState {
    fn send(&mut self, event: WatchEvent) {
        self.tx = self.tx.take().filter(|tx| tx.receiver_count() > 0);
        if let Some(tx) = &self.tx {
            drop(tx.send(Arc::new(event)));
        }
    }
}

/// The receipt in the record of a stopped turn.
fn receipt_of(record: &SessionRecord) -> Option<WatchEvent> {
    let SessionRecord::TurnStopped {
        receipt: Some(receipt),
        ..
    } = record
    else {
        return None;
    };
    let receipt = Arc::clone(receipt);
    Some(WatchEvent::Receipt { receipt })
}

/// The event for a record that no other event reports.
fn recorded_event(record: &Arc<SessionRecord>, of_message: bool) -> Option<WatchEvent> {
    use SessionRecord::{BackgroundEnded, Compacted, TurnStopped};
    let is_reported = match **record {
        TurnStopped { .. } => !of_message,
        BackgroundEnded { .. } | Compacted { .. } => true,
        _ => false,
    };
    let record = Arc::clone(record);
    is_reported.then_some(WatchEvent::Recorded { record })
}

/// The user's message in a record.
fn message_of(record: &SessionRecord) -> Option<WatchEvent> {
    use SessionRecord::{MessageSteered, TurnStarted};
    let (TurnStarted {
        input: text,
        images,
        ..
    }
    | MessageSteered { text, images, .. }) = record
    else {
        return None;
    };
    let text = text_with_images(text, images.iter().copied()).into();
    Some(WatchEvent::Message { text })
}
