//! Delivery of a session's events to one client.
//!
//! The feed reads the events of the session from a cursor, so a client that does not read does not delay the session.
//! The feed ends when the client is detached or the session is closed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use allstop_agent::AgentEvent;
use allstop_core::{CallId, Cause, CauseKind};
use allstop_session::{SessionEvent, SessionEventKind, StopTarget, Subscription};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::{sleep, timeout};

use super::HostedSession;
use super::attached_clients::FeedHandle;
use super::rejection_stop::RejectionStop;
use crate::connection::{Client, QueueClosed};
use crate::event::CopilotEvent;
use crate::translate::{EventTranslator, HostEvent};

/// Pause before the log is read again after a failure.
const READ_AGAIN: Duration = Duration::from_millis(500);

/// Maximum time that the event `session.idle` waits for the answers of aborts (stops by this client). These answers
/// must precede the event.
const ABORT_ANSWER_MAX: Duration = Duration::from_secs(1);

/// Delay of the event `session.idle` after a turn that did not complete. A client may send its next message at once.
/// Without the delay, such a client could take the event for the end of that message. The SDK for JavaScript does this.
const NEXT_MESSAGE_MAX: Duration = Duration::from_millis(25);

/// Feed of a session for one client.
pub(super) struct Feed {
    pub(super) session: Arc<HostedSession>,
    pub(super) client: Arc<Client>,
    pub(super) translator: EventTranslator,
    pub(super) events: Subscription,
    pub(super) host: broadcast::Receiver<HostEvent>,
    pub(super) handle: FeedHandle,
    /// True if the client was too slow to receive the start of some calls. When the feed has reached the running turn,
    /// it sends the unanswered requests to the handlers again.
    pub(super) has_missed: bool,
    pub(super) rejection: RejectionStop,
}

impl Feed {
    /// Runs until the client is detached, its connection has ended, or the session is closed and all events are sent.
    pub(super) async fn run(mut self) {
        let mut is_detached = self.handle.is_detached.subscribe();
        loop {
            let mut ended = None;
            let mut events = tokio::select! {
                biased;
                () = detached(&mut is_detached) => return,
                event = self.host.recv() => match event {
                    Ok(event) => self.translator.host_event(&event, now()),
                    Err(RecvError::Lagged(_)) => {
                        self.has_missed = true;
                        Vec::new()
                    }
                    Err(RecvError::Closed) => return,
                },
                event = self.events.next() => match event {
                    Ok(Some(event)) => {
                        self.has_missed |= matches!(event.kind, SessionEventKind::Missed { .. });
                        self.answer_unasked(&event.kind);
                        self.end_after_rejection(&event);
                        if let SessionEventKind::Live(AgentEvent::TurnEnded { turn, .. }) =
                            &event.kind
                        {
                            ended = Some(*turn);
                        }
                        self.translator.session_event(&event, now())
                    }
                    Ok(None) => return,
                    Err(error) => {
                        tracing::warn!(%error, "the events of a session are read later");
                        sleep(READ_AGAIN).await;
                        continue;
                    }
                },
            };
            let (sent_turn, _) = self.translator.last_turn();
            if self.has_missed && sent_turn >= self.session.session.last_turn() {
                self.has_missed = false;
                events.extend(self.pending_calls());
            }
            for event in events {
                let sent = tokio::select! {
                    biased;
                    () = detached(&mut is_detached) => return,
                    sent = self.send(&event) => sent,
                };
                if sent.is_err() {
                    return;
                }
            }
            if let Some(turn) = ended {
                self.handle.turns.send_replace(turn);
            }
        }
    }

    /// Ends the turn after a call that the user has rejected without a reason, as the official runtime does: the user has
    /// another instruction for the model.
    fn end_after_rejection(&mut self, event: &SessionEvent) {
        let session = &self.session.session;
        let is_rejected = |call: &CallId| self.session.facts.is_rejected(call.as_str());
        if self.rejection.is_due(event, session, is_rejected) {
            let cause = Cause::new(CauseKind::User)
                .by("copilot")
                .detail("the user rejected a call");
            // A second stop, for another feed, joins the first. The receipt is an event of the session.
            drop(session.stop(&StopTarget::Turn, cause));
        }
    }

    /// Like [`Feed::run`], but sends these events first.
    pub(super) async fn run_after(self, first: Vec<CopilotEvent>) {
        for event in first {
            if self.send(&event).await.is_err() {
                return;
            }
        }
        self.run().await;
    }

    /// Answers a permission question if the session allows all calls, or with the default answer if no client answers such
    /// questions.
    fn answer_unasked(&self, event: &SessionEventKind) {
        if let SessionEventKind::PermissionAsked(question) = event
            && self.session.approves_all()
        {
            self.session.approve(question);
            return;
        }
        if let SessionEventKind::PermissionAsked(question) = event
            && !self.session.attached_clients.has_permission_handler()
        {
            self.session.answer_unasked(question);
        }
    }

    /// Returns a warning for each part that the client has requested and the server does not offer.
    pub(super) fn not_offered(&mut self, messages: &[Arc<str>]) -> Vec<CopilotEvent> {
        let parts = messages.iter().map(|message| HostEvent::NotOffered {
            message: Arc::clone(message),
        });
        parts
            .flat_map(|event| self.translator.host_event(&event, now()))
            .collect()
    }

    /// Returns events for unanswered calls: calls whose events were missed, or that began before this client attached.
    pub(super) fn pending_calls(&mut self) -> Vec<CopilotEvent> {
        let pending = self.session.tools.pending();
        let events = pending.into_iter().map(HostEvent::ExternalPending);
        events
            .flat_map(|event| self.translator.host_event(&event, now()))
            .collect()
    }

    async fn send(&self, event: &CopilotEvent) -> Result<(), QueueClosed> {
        if event.kind == "session.idle" && !self.is_still_idle().await {
            // The next event `session.idle` follows the next turn.
            return Ok(());
        }
        self.client.event(self.session.id().as_str(), event).await?;
        if event.kind == "assistant.idle" {
            self.handle.idles.send_modify(|idles| *idles += 1);
        }
        Ok(())
    }

    /// Returns false if another turn runs or waits when the client would receive the event `session.idle`.
    async fn is_still_idle(&self) -> bool {
        let mut aborts = self.handle.aborts.subscribe();
        let answered = async { drop(aborts.wait_for(|aborts| *aborts == 0).await) };
        let _answered_or_late = timeout(ABORT_ANSWER_MAX, answered).await;
        let (turn, is_completed) = self.translator.last_turn();
        if !is_completed {
            sleep(NEXT_MESSAGE_MAX).await;
        }
        let session = &self.session.session;
        !session.is_busy() && session.last_turn() <= turn
    }
}

/// Completes when the client is detached.
async fn detached(is_detached: &mut watch::Receiver<bool>) {
    // The feed's own handle holds the sender, so the wait ends only when the value changes.
    drop(is_detached.wait_for(|is| *is).await);
}

pub(crate) fn now() -> allstop_core::Timestamp {
    SystemTime::now().into()
}
