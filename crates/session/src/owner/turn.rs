//! One turn of a session, from its place in the queue to its outcome.

use std::sync::Arc;

use allstop_agent::{RunHistory, RunOutcome, RunRequest, TurnError, TurnOutcome};
use allstop_core::{Cause, CauseKind, Extent, StopReason};
use allstop_scope::{Scope, WorkLost};

use super::{SessionOwner, WAKES_MAX};
use crate::events::SessionEventKind;
use crate::message::MessageOutcome;
use crate::queued_turn::QueuedTurn;

impl SessionOwner {
    pub(super) async fn run_turn(&mut self, queued: Arc<QueuedTurn>) {
        if queued.is_from_user() {
            self.wakes = 0;
        }
        self.idle_sent = false;
        self.inner.hub.begin(queued.message().cloned());
        match self.run_agent(&queued).await {
            Ok(turn) => {
                let outcome = MessageOutcome::of_turn(queued.message().cloned(), &turn);
                if !queued.is_from_user() && !outcome.is_completed() {
                    // The notes about ended work are still undelivered. If the counter were not set to its limit, the
                    // notes would wake the session at once, and the next turn would fail again.
                    self.wakes = WAKES_MAX;
                }
                self.end_turn(&queued, outcome);
                self.record_stops_of(&queued, &turn).await;
                self.call_ending_hooks(&turn).await;
            }
            Err(error) => {
                let outcome = no_turn(&queued, error).await;
                self.end_turn(&queued, outcome);
            }
        }
        self.record_background().await;
        self.check_orphans().await;
        let (stopped, running) = (self.stopped, self.inner.background_items());
        self.inner
            .hub
            .send(|| SessionEventKind::AssistantIdle { stopped, running });
    }

    /// Repeats an append that the store has not confirmed, until its result is known, before the turn gets its number.
    /// If an earlier turn has no written ending, ends that turn as the recovery after a crash does.
    async fn settle(&mut self, stopped: &Scope) -> Result<(), TurnError> {
        let at = (self.inner.host.options.now)();
        let Some(writer) = self.writer() else {
            return Ok(());
        };
        let settling = async {
            writer.settle().await?;
            let records = writer.state().recovery_records(at);
            writer.append(records).await
        };
        tokio::select! {
            biased;
            settled = settling => settled.map_err(TurnError::from),
            () = stopped.stopped() => Err(TurnError::bug("it was stopped before")),
        }
    }

    async fn run_agent(&mut self, queued: &Arc<QueuedTurn>) -> Result<TurnOutcome, TurnError> {
        self.open(&queued.scope).await?;
        self.settle(&queued.scope).await?;
        self.compact_if_long(queued).await;
        let open = self.resources.as_mut();
        let open = open.ok_or_else(|| TurnError::bug("the session is not open"))?;
        let writer = open.writer.take();
        let writer = writer.ok_or_else(|| TurnError::bug("the session has no log"))?;
        let number = writer.state().next_turn();
        queued.state.begin(number);
        // A waiting message has only its initial label until now.
        let label = format!("{}/turn/{number}", self.inner.label());
        queued.scope.relabel(label);
        if let Some(awake) = &mut self.inner.state.lock().awake {
            awake.begin_background_of(queued.message());
        }
        let mut request = RunRequest::new(RunHistory::Logged(writer), queued.prompt.clone())
            .background(Arc::clone(&open.background));
        request.controls = Arc::clone(&queued.controls);
        request.decision = Some(Arc::clone(&queued.decision));
        let sink = self.inner.hub.sink(queued);
        let mut run = open.session.agent.start(&queued.scope, request, sink);
        let ended: Result<RunOutcome, WorkLost> = loop {
            tokio::select! {
                biased;
                ended = run.wait() => break ended,
                changed = open.changes.changed() => {
                    if changed.is_ok() {
                        self.inner.send_background_changed();
                    }
                }
            }
        };
        match ended {
            Ok(RunOutcome { mut turns, history }) => {
                if let RunHistory::Logged(writer) = history {
                    open.writer = Some(writer);
                }
                self.publish();
                let turn = turns.pop();
                if let Some(turn) = &turn {
                    self.record_summary_of(turn).await;
                }
                turn.ok_or_else(|| TurnError::bug("a run had no turn"))
            }
            Err(lost) => {
                // The log was lost with the engine, the task that ran the turn. The next message reopens the log, and
                // the recovery of the log then ends the turn.
                Err(TurnError::bug(format!("the engine was lost: {lost}")))
            }
        }
    }

    /// Writes the receipts of the stops that have ended the turn. If hooks run next, first waits until these receipts
    /// are complete, because hooks may take long.
    async fn record_stops_of(&mut self, queued: &QueuedTurn, turn: &TurnOutcome) {
        if self.has_ending_hooks(turn) {
            let state = &queued.state;
            self.inner.stops_complete(|stops| stops.ending(state)).await;
        }
        self.record_background().await;
    }

    /// Sets the outcome of the message, and of the messages that its turn took. Frees the queue first, because a caller
    /// that receives the outcome may send the next message at once.
    fn end_turn(&mut self, queued: &Arc<QueuedTurn>, outcome: MessageOutcome) {
        let undelivered = queued.controls.undelivered();
        queued.scope.close();
        let mut state = self.inner.state.lock();
        let was_taken = |steered: &Arc<QueuedTurn>| {
            !undelivered
                .iter()
                .any(|message| Some(&message.id) == steered.message())
        };
        let taken = state.queue.end(was_taken);
        state.last = Some(Arc::clone(queued));
        drop(state);
        self.stopped = outcome.stop_reason != StopReason::Completed;
        for steered in taken {
            steered.scope.close();
            steered.state.resolve(MessageOutcome {
                message: steered.message().cloned(),
                ..outcome.clone()
            });
        }
        queued.state.resolve(outcome);
    }
}

/// Outcome of a message if the session could not be opened, because of a stop or a failure.
async fn no_turn(queued: &QueuedTurn, error: TurnError) -> MessageOutcome {
    let message = queued.message().cloned();
    let Some(account) = queued.scope.account(Extent::Turn, Vec::new()) else {
        return MessageOutcome::failed(message, error);
    };
    let cause = queued
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
