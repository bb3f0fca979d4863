//! A run under way: its turns, and the stop that a signal or a deadline begins.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{AgentEvent, EventSink, History, RunOutcome, TurnError, TurnErrorKind};
use allstop_core::{Cause, CauseKind, Extent, Receipt, StopReason};
use allstop_runtime::{Envelope, OpenSession, System};
use allstop_scope::{Scope, Stop, StopOrder};
use parking_lot::Mutex;

use super::show::Show;
use super::supervise::{Cut, Supervisor};
use crate::args::BackgroundArgs;
use crate::control::Effect;
use crate::display::{Watcher, watch};

/// A run under way.
pub(super) struct Running<'a, 'b> {
    pub(super) system: &'a System,
    pub(super) session: &'a OpenSession,
    pub(super) background: &'a BackgroundArgs,
    pub(super) show: &'a mut Show<'b>,
    pub(super) supervisor: &'a mut Supervisor,
    /// The stop that a signal or a deadline has begun.
    pub(super) stop: Option<Stop>,
    /// The deadline of the run: it bounds the wait for background work too.
    pub(super) deadline: Option<(Instant, Duration)>,
    /// The exit code, where the turns completed and the wait for background work was cut.
    pub(super) wait_cut: Option<u8>,
}

impl Running<'_, '_> {
    pub(super) async fn drive(mut self, history: History, prompts: Vec<Arc<str>>) -> Envelope {
        let turn = history.next_turn();
        let outcome = match self.turns(history, prompts).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let mut envelope = self.cut_short(error);
                envelope.turn = Some(turn);
                return envelope;
            }
        };
        let mut envelope = Envelope::of_run(self.session.id.clone(), &outcome.turns);
        let mut history = outcome.history;
        match self
            .end_background(&mut history, envelope.stop_reason)
            .await
        {
            Ok(Some(receipt)) => {
                let conversation = envelope.receipt.as_ref().map(|turns| turns.conversation());
                let receipt = Receipt::clone(&receipt)
                    .with_conversation(conversation.unwrap_or_default())
                    .with_usage(envelope.usage);
                envelope = envelope.with_receipt(Arc::new(receipt));
            }
            Ok(None) => {}
            Err(message) => self.show.warn(&message),
        }
        match self.wait_cut {
            Some(code) => envelope.with_exit_code(code),
            None => envelope,
        }
    }

    /// Runs the turns. `Err`: the last moment came, or the engine was lost.
    async fn turns(
        &mut self,
        history: History,
        prompts: Vec<Arc<str>>,
    ) -> Result<RunOutcome, Option<TurnError>> {
        let (sink, mut events) = EventSink::channel();
        let mut run = self.session.run(history, prompts, sink);
        let run_scope = run.scope().clone();
        let stop = Mutex::new(None);
        let begin = |cause: Cause| {
            let keeps = self.background.keep_background;
            let begun = begin_stop(self.system, self.session, &run_scope, keeps, cause);
            *stop.lock() = Some(begun);
        };
        let waited = {
            let mut watcher = DeadlineWatcher {
                show: self.show,
                heard: &begin,
            };
            let watching = watch(&mut events, &mut watcher, run.wait());
            let carry_out = |effect: Effect| {
                match effect {
                    Effect::Stop(cause) => begin(cause),
                    Effect::Force => stop.lock().iter().for_each(Stop::force),
                    Effect::Nothing => {}
                }
                ControlFlow::Continue(())
            };
            self.supervisor.race(watching, carry_out).await
        };
        self.stop = stop.into_inner();
        match waited {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(lost)) => Err(Some(TurnError {
                kind: TurnErrorKind::Bug,
                message: format!("the engine was lost: {lost}"),
                hint: Some("this is a bug of Allstop: please report it".to_owned()),
            })),
            Err(Cut::LastMoment | Cut::Stopped) => Err(None),
        }
    }

    /// What is known when the engine has not answered: the account of the stop at this moment.
    fn cut_short(&self, error: Option<TurnError>) -> Envelope {
        let reason = match &error {
            Some(_) => StopReason::Error,
            None => self.supervisor.control.stop_reason(),
        };
        let mut envelope = Envelope::of_no_run(Some(self.session.id.clone()), reason, error);
        if let Some(stop) = &self.stop {
            let receipt = stop.account_now();
            envelope.cancel_observed = receipt.cancel_observed();
            envelope.receipt = Some(receipt);
        }
        envelope
    }
}

/// Shows events, and hears of the turn's own deadlines: they are a stop like that of a signal, and the background work
/// is not to wait for its end.
struct DeadlineWatcher<'a, 'b> {
    show: &'a mut Show<'b>,
    heard: &'a (dyn Fn(Cause) + Sync),
}

impl Watcher for DeadlineWatcher<'_, '_> {
    fn event(&mut self, event: &AgentEvent) {
        self.show.event(event);
        if let AgentEvent::StopHeard { cause } = event
            && matches!(cause.kind, CauseKind::Deadline | CauseKind::Inactivity)
        {
            (self.heard)(cause.clone());
        }
    }

    fn missed(&mut self, count: u64) {
        self.show.missed(count);
    }
}

/// Begins the stop that a signal or a deadline asks for. Background work is stopped with the turn, unless it is to be kept: one
/// ladder for all of it, so that one grace bounds the exit.
fn begin_stop(
    system: &System,
    session: &OpenSession,
    run: &Scope,
    keeps_background: bool,
    cause: Cause,
) -> Stop {
    use allstop_tools::BackgroundHost as _;
    if !keeps_background && !session.background.running().is_empty() {
        return system.scope().stop(StopOrder::new(Extent::Process, cause));
    }
    run.stop(StopOrder::new(Extent::Turn, cause).bystander(&session.background.scope()))
}
