//! One turn of a session, from its slot to its outcome.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_agent::{History, RunOutcome, RunRequest, TurnError, TurnErrorKind, TurnOutcome};
use allstop_core::{Cause, CauseKind, Extent, StopReason};
use allstop_scope::{Scope, WorkLost};

use super::{SessionDriver, WAKES_MAX};
use crate::events::SessionEventKind;
use crate::message::MessageOutcome;
use crate::slot::Slot;

impl SessionDriver {
    pub(super) async fn turn(&mut self, slot: Arc<Slot>) {
        if slot.is_sent() {
            self.wakes = 0;
        }
        self.told_idle = false;
        self.shared.hub.begin(slot.message().cloned());
        match self.run(&slot).await {
            Ok(turn) => {
                let outcome = MessageOutcome::of_turn(slot.message().cloned(), &turn);
                if !slot.is_sent() && !outcome.is_completed() {
                    // The notes are still undelivered: the session would be woken at once, only to fail again.
                    self.wakes = WAKES_MAX;
                }
                self.end_turn(&slot, &outcome);
                self.tell_ending(&turn).await;
            }
            Err(error) => {
                let outcome = no_turn(&slot, error).await;
                self.end_turn(&slot, &outcome);
            }
        }
        self.record_background().await;
        self.look_for_left().await;
        let (stopped, running) = (self.stopped, self.shared.background_items());
        self.shared
            .hub
            .send(|| SessionEventKind::AssistantIdle { stopped, running });
    }

    /// Settles an append that the store has not confirmed, before the turn gets its number. A turn without a written
    /// ending is ended as after a crash.
    async fn settle(&mut self, stopped: &Scope) -> Result<(), TurnError> {
        let at = (self.shared.host.options.now)();
        let Some(stream) = self.stream() else {
            return Ok(());
        };
        let settling = async {
            stream.settle().await?;
            let records = stream.state().recovery_records(at);
            stream.append(records).await
        };
        tokio::select! {
            biased;
            settled = settling => settled.map_err(TurnError::from),
            () = stopped.stopped() => Err(bug("it was stopped before")),
        }
    }

    async fn run(&mut self, slot: &Arc<Slot>) -> Result<TurnOutcome, TurnError> {
        self.open(&slot.scope).await?;
        self.settle(&slot.scope).await?;
        self.compact_if_long(slot).await;
        let open = self.open.as_mut();
        let open = open.ok_or_else(|| bug("the session is not open"))?;
        let stream = open.stream.take();
        let stream = stream.ok_or_else(|| bug("the session's log is elsewhere"))?;
        slot.state.begin(stream.state().next_turn());
        let request = RunRequest {
            history: History::Logged(stream),
            prompts: VecDeque::from([slot.prompt.clone()]),
            context: None,
            background: Some(Arc::clone(&open.background)),
            controls: Arc::clone(&slot.controls),
            decision: Some(Arc::clone(&slot.decision)),
        };
        let sink = self.shared.hub.sink(slot);
        let mut run = open.session.agent.start(&slot.scope, request, sink);
        let ended: Result<RunOutcome, WorkLost> = loop {
            tokio::select! {
                biased;
                ended = run.wait() => break ended,
                changed = open.changes.changed() => {
                    if changed.is_ok() {
                        self.shared.tell_background();
                    }
                }
            }
        };
        match ended {
            Ok(RunOutcome { mut turns, history }) => {
                if let History::Logged(stream) = history {
                    open.stream = Some(stream);
                }
                self.publish();
                turns.pop().ok_or_else(|| bug("a run had no turn"))
            }
            Err(lost) => {
                // The log was lost with the engine. The next message reopens it, which ends the turn.
                Err(bug(&format!("the engine was lost: {lost}")))
            }
        }
    }

    /// Sets the outcome of the message, and of the messages that its turn took. Frees the queue first: a caller that
    /// has the outcome and sends the next message must find the queue free.
    fn end_turn(&mut self, slot: &Arc<Slot>, outcome: &MessageOutcome) {
        let undelivered = slot.controls.undelivered();
        slot.scope.close();
        let mut inner = self.shared.inner.lock();
        let was_taken = |steered: &Arc<Slot>| {
            !undelivered
                .iter()
                .any(|message| Some(&message.id) == steered.message())
        };
        let taken = inner.desk.end(was_taken);
        inner.last = Some(Arc::clone(slot));
        drop(inner);
        self.stopped = outcome.stop_reason != StopReason::Completed;
        for steered in taken {
            steered.scope.close();
            steered.state.resolve(MessageOutcome {
                message: steered.message().cloned(),
                ..outcome.clone()
            });
        }
        slot.state.resolve(outcome.clone());
    }
}

/// Outcome of a message for which the session could not be opened, because of a stop or a failure.
async fn no_turn(slot: &Slot, error: TurnError) -> MessageOutcome {
    let message = slot.message().cloned();
    let Some(account) = slot.scope.account(Extent::Turn, Vec::new()) else {
        return MessageOutcome::failed(message, error);
    };
    let cause = slot
        .scope
        .cause()
        .unwrap_or_else(|| Cause::new(CauseKind::Parent));
    MessageOutcome {
        stop_reason: cause.kind.stop_reason().unwrap_or(StopReason::Error),
        cause: Some(cause),
        receipt: Some(account.receipt().await),
        error: None,
        ..MessageOutcome::failed(message, error)
    }
}

pub(super) fn bug(message: &str) -> TurnError {
    TurnError {
        kind: TurnErrorKind::Bug,
        message: message.to_owned(),
        hint: Some("this is a bug of Allstop: please report it".to_owned()),
    }
}
