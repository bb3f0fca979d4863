//! The turns of a run. Each prompt is a message of the session. A message is sent after the turn of the previous
//! message has completed.

use std::sync::Arc;
use std::time::Instant;

use allstop_agent::{AgentEvent, TurnError, TurnErrorKind};
use allstop_core::turn::LostTurn;
use allstop_core::{Cause, CauseKind, Extent, Images, StopReason};
use allstop_runtime::Envelope;
use allstop_session::{
    FollowUp, LiveEvents, MessageDeadline, MessageOutcome, NewMessage, Session, SessionEvent,
    SessionEventKind, SessionStop, StopTarget,
};
use allstop_terminal::{JobChange, JobControl};
use allstop_tools::BackgroundWork;
use allstop_tools::mcp::{McpServers, McpStatusEvents};

use super::view::RunView;
use crate::args::BackgroundArgs;
use crate::control::ControlEffect;
use crate::display::EventView as _;
use crate::shell_command::SameFlags;
use crate::stream_reader::StreamReader;
use crate::supervise::Supervisor;
use allstop_remote::{RemoteStop, TerminalSession};

/// A run in progress.
pub(super) struct RunTurns<'a, 'b> {
    pub(super) session: &'a Session,
    pub(super) background: &'a BackgroundArgs,
    pub(super) view: &'a mut RunView<'b>,
    pub(super) supervisor: &'a mut Supervisor,
    pub(super) events: LiveEvents,
    pub(super) servers: &'a McpServers,
    pub(super) news: McpStatusEvents,
    pub(super) job: JobControl,
    /// Flags for commands on the same store.
    pub(super) flags: SameFlags,
    /// Stops from other terminals.
    pub(super) remote: TerminalSession,
    /// The stop that ends the run. A signal, a deadline or another terminal has begun this stop.
    pub(super) stop: Option<SessionStop>,
    /// Reader of the events on standard output.
    pub(super) reader: StreamReader,
    /// Further stops from other terminals: stops of single calls, and stops that do not end the run because `stop`
    /// already does.
    pub(super) other_stops: Vec<SessionStop>,
    /// Background work at the beginning of the stop. A session that the stop has closed does not list it any more.
    pub(super) works_at_stop: Vec<Arc<BackgroundWork>>,
    /// True if the owner of the session (the task that runs its turns) has finished all work since the last message,
    /// including hooks.
    pub(super) owner_idle: bool,
    /// Turns whose calls the first turn reports to the model.
    pub(super) unreported: &'a [LostTurn],
}

/// Outcome of the prompts of a run.
#[derive(Default)]
pub(super) struct PromptOutcomes {
    /// Outcome of each sent message.
    pub(super) messages: Vec<Arc<MessageOutcome>>,
    /// Background work at the end of the last turn. A session that a stop has closed does not list it any more.
    pub(super) works: Vec<Arc<BackgroundWork>>,
    /// Failure to send a message.
    pub(super) error: Option<TurnError>,
    /// Reason of a stop that came between two turns.
    pub(super) stopped: Option<StopReason>,
    /// True if the exit time is reached, so the process has to exit with the results so far.
    pub(super) is_cut: bool,
}

impl RunTurns<'_, '_> {
    /// Sends the prompts one after the other, the first with the images. If the turn of a prompt does not complete, sends no further prompt.
    pub(super) async fn send_all(
        &mut self,
        prompts: Vec<Arc<str>>,
        mut images: Images,
    ) -> PromptOutcomes {
        let mut run = PromptOutcomes::default();
        for prompt in prompts {
            self.owner_idle = false;
            // The turn also gets the deadline, so it never begins a wait beyond it.
            let deadline = self.supervisor.control.deadline();
            let deadline = deadline.map(|(at, detail)| MessageDeadline {
                at: at.into(),
                detail: detail.into(),
            });
            let message = NewMessage::from(prompt)
                .images(std::mem::take(&mut images))
                .policy(FollowUp::Enqueue)
                // If a stop came after the commit of the previous turn, this turn ends at its start.
                .stopped(self.supervisor.control.cause().cloned())
                .deadline(deadline);
            let sent = match self.session.send(message) {
                Ok(sent) => sent,
                // The session is closed, because the stop came between two turns.
                Err(_) if self.stops_all() => {
                    run.stopped = Some(self.supervisor.control.stop_reason());
                    return run;
                }
                Err(error) => {
                    run.error = Some(TurnError {
                        kind: TurnErrorKind::Bug,
                        message: error.to_string(),
                        hint: None,
                    });
                    return run;
                }
            };
            let outcome = self.wait(sent.outcome(), |_| false).await;
            run.is_cut = outcome.is_none();
            run.works = self.session.background();
            if run.works.is_empty() {
                run.works = std::mem::take(&mut self.works_at_stop);
            }
            let outcome =
                outcome.unwrap_or_else(|| self.session.outcome_now(&sent, self.stop.as_ref()));
            let completed = outcome.is_completed();
            run.messages.push(outcome);
            if !completed {
                return run;
            }
        }
        run
    }

    /// Waits until no background work runs, except detached work (work that is left running on purpose). If a stop
    /// comes first, returns its stop reason.
    pub(super) async fn wait_background(&mut self, envelope: &Envelope) -> Option<StopReason> {
        // A stop may have come between the commit of the last turn and this call.
        if let Some(reason) = self.reason_of_stop(envelope) {
            return Some(reason);
        }
        let mut works = self.session.background().into_iter();
        if !works.any(|work| work.is_running()) {
            return None;
        }
        self.view
            .note("waiting for background work · Ctrl-C stops it");
        let session = self.session.clone();
        let idle = self.wait(session.background_idle(), |run| run.stop.is_some());
        match idle.await {
            Some(()) => None,
            None => Some(self.supervisor.control.stop_reason()),
        }
    }

    /// The stop reason, if a stop has ended the background work.
    pub(super) fn reason_of_stop(&self, envelope: &Envelope) -> Option<StopReason> {
        let has_stopped = |stop: &SessionStop| {
            let mut receipts = envelope.receipts.iter();
            let id = &stop.request().stop_id;
            receipts.any(|receipt| receipt.stop_id() == id && receipt.lists_work())
        };
        let stopped = self.stop.as_ref().filter(|_| self.stops_background());
        let is_stopped = self.stops_all() || stopped.is_some_and(has_stopped);
        is_stopped.then(|| self.supervisor.control.stop_reason())
    }

    /// Waits for `wait`, and meanwhile shows events and carries out stops. `None` if the exit time is reached, or if
    /// `is_over` returns true after a stop.
    async fn wait<T>(
        &mut self,
        wait: impl Future<Output = T>,
        is_over: impl Fn(&Self) -> bool,
    ) -> Option<T> {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                effect = self.supervisor.next() => if self.carry_out(effect) || is_over(self) {
                    return None;
                },
                reply = self.view.next_reply() => self.view.reply(reply),
                () = self.reader.gone() => {
                    self.stop_without_reader();
                    if is_over(self) {
                        return None;
                    }
                }
                // Events are shown before the result of the wait is handled. Otherwise the last events would be shown
                // after the caller's output.
                Some(event) = self.events.next() => self.show(&event),
                waited = &mut wait => {
                    while let Some(event) = self.events.try_next() {
                        self.show(&event);
                    }
                    return Some(waited);
                }
                asked = self.remote.next_stop() => {
                    self.stopped_from_elsewhere(asked);
                    if is_over(self) {
                        return None;
                    }
                }
                change = self.news.next() => self.view.server(&change),
                // A suspended process could not force the stop in time. The run ends soon anyway.
                change = self.job.next() => if change == JobChange::Suspend && self.stop.is_some() {
                    self.view.note("a stop is running; the run ends with it, so it is not suspended");
                } else {
                    self.view.job_changed(change, self.session);
                },
            }
        }
    }

    /// True if the run's stop covers the whole process, including the background work.
    pub(super) fn stops_all(&self) -> bool {
        let extent = self.stop.as_ref().map(|stop| stop.request().extent);
        extent == Some(StopTarget::Process.extent())
    }

    /// True if another terminal has stopped the turn and the background work, or the session. The background work must
    /// then not be kept.
    pub(super) fn stops_background(&self) -> bool {
        let extent = self.stop.as_ref().map(|stop| stop.request().extent);
        matches!(extent, Some(Extent::TurnAndBackground | Extent::Session))
    }

    /// Carries out the effect of a signal or of the clock. Returns true if the process has to exit.
    fn carry_out(&mut self, effect: ControlEffect) -> bool {
        match effect {
            ControlEffect::Stop(cause) => self.begin_stop(cause),
            ControlEffect::Force(cause) => {
                self.widen_stop(cause);
                let stops = self.stop.iter().chain(&self.other_stops);
                stops.for_each(SessionStop::force);
            }
            ControlEffect::Nothing => {}
            ControlEffect::Exit => return true,
        }
        false
    }

    /// A signal ends the whole run. If an earlier stop from another terminal covers only the turn, this function begins
    /// a stop that also covers the background work.
    fn widen_stop(&mut self, cause: Cause) {
        let covers_background = self.stops_all() || self.stops_background();
        if !covers_background && self.ends_background() {
            self.other_stops.extend(self.stop.take());
            self.stop = Some(self.session.stop(&StopTarget::Process, cause));
        } else if self.stop.is_none() {
            // A deadline has stopped the turn. Force needs a stop of the session.
            self.stop = Some(self.session.stop(&StopTarget::Turn, cause));
        }
    }

    /// Begins the stop that a signal or a deadline requests. Unless `--keep-background` is set, this stop also covers
    /// the background work. A single stop for all this work has a single grace, so the exit comes sooner than with two
    /// stops.
    fn begin_stop(&mut self, cause: Cause) {
        self.end_with_stop();
        self.works_at_stop = self.session.background();
        let target = if self.ends_background() {
            StopTarget::Process
        } else {
            StopTarget::Turn
        };
        self.stop = Some(self.session.stop(&target, cause));
    }

    /// True if background work runs, and a stop of the run has to end it.
    fn ends_background(&self) -> bool {
        self.session.has_background_activity() && !self.background.keep_background
    }

    /// Handles a stop from another terminal. A stop of the turn ends the run, like a signal; a stop of a single call
    /// does not end the run.
    pub(super) fn stopped_from_elsewhere(&mut self, asked: RemoteStop) {
        if !asked.covers_turn || self.stop.is_some() {
            self.other_stops.push(asked.stop);
            return;
        }
        let cause = asked.stop.request().cause.clone();
        self.supervisor.control.stop(cause, Instant::now());
        self.end_with_stop();
        self.stop = Some(asked.stop);
    }

    /// Stops the run because no program reads its events any more. An earlier stop keeps its cause.
    fn stop_without_reader(&mut self) {
        if self.supervisor.control.cause().is_some() {
            return;
        }
        let cause = Cause::new(CauseKind::Disconnect)
            .detail("the reader of standard output is gone")
            .by("cli");
        self.supervisor.control.stop(cause.clone(), Instant::now());
        self.begin_stop(cause);
    }

    /// Shows the stop that ends the run, and lets the MCP servers end with their calls.
    fn end_with_stop(&mut self) {
        self.servers.end_with_stopped_calls();
        let force_at = self.supervisor.control.force_at();
        self.view.stopping(force_at);
        self.remote.announcer().stopping(force_at);
    }

    fn show(&mut self, event: &SessionEvent) {
        self.owner_idle |= show(self.view, &self.remote, event);
        // The turn has reached its deadline. This is handled like a signal: a stop of the background work begins at
        // once, and not after the end of the turn. The turn itself is stopped already, and its ending has the receipt.
        if let SessionEventKind::Live(AgentEvent::StopHeard { cause }) = &event.kind
            && matches!(cause.kind, CauseKind::Deadline | CauseKind::Inactivity)
            && self.supervisor.control.cause().is_none()
        {
            self.supervisor.control.stop(cause.clone(), Instant::now());
            if self.ends_background() {
                self.begin_stop(cause.clone());
            } else {
                self.end_with_stop();
            }
        }
    }
}

/// Shows an event. Returns true if the event reports that the owner of the session has finished all work after a turn.
pub(super) fn show(view: &mut RunView<'_>, remote: &TerminalSession, event: &SessionEvent) -> bool {
    match &event.kind {
        SessionEventKind::Live(event) => view.event(event),
        SessionEventKind::Recorded { record, .. } => view.recorded(record),
        SessionEventKind::PermissionAsked(question) => {
            view.ask(question.clone());
        }
        SessionEventKind::PermissionAnswered { id, answer } => {
            if let Some(questions) = &mut view.questions {
                let by = remote.answered_by(id);
                questions.closed(id, answer.as_ref(), by.as_deref());
            }
        }
        SessionEventKind::AssistantIdle { .. } => return true,
        SessionEventKind::Missed { count } => view.missed(*count),
        _ => {}
    }
    false
}
