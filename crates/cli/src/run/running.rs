//! A run under way: its turns, and the stop that a signal or a deadline begins.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{AgentEvent, EventSink, History, RunOutcome, TurnError, TurnErrorKind};
use allstop_core::receipt::{ItemState, StopFindings, StopRequest, Why};
use allstop_core::{Cause, CauseKind, Extent, Receipt, StopReason};
use allstop_runtime::{Envelope, LeftWork, OpenSession, System};
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
    /// Background work that runs on without this process.
    pub(super) kept: Vec<LeftWork>,
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
        let receipt = self
            .end_background(&mut history, envelope.stop_reason)
            .await;
        if let Some(receipt) = receipt {
            let turns = envelope.receipt.as_deref();
            let conversation = turns.map(Receipt::conversation).unwrap_or_default();
            let whole = match (turns, &self.stop) {
                (Some(turn), Some(stop)) if stop.request().extent == Extent::Turn => {
                    together(turn, &receipt)
                }
                _ => Receipt::clone(&receipt),
            };
            let whole = whole
                .with_conversation(conversation)
                .with_usage(envelope.usage);
            envelope = envelope.with_receipt(Arc::new(whole));
        }
        envelope.background = self.kept;
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

/// One account of a turn's stop and of that of the background work which was to be kept and could not be: the first has
/// named it as outside of its extent.
fn together(turn: &Receipt, background: &Receipt) -> Receipt {
    let outside = ItemState::StillRunning {
        why: Why::OutsideExtent,
    };
    let stopped = turn.items().iter().filter(|item| item.state != outside);
    let request = StopRequest {
        extent: Extent::Process,
        ..turn.request().clone()
    };
    let begun_at = background.request().requested_at.unix_ms();
    let between_ms = begun_at.saturating_sub(request.requested_at.unix_ms());
    let last = background.quiet_after_ms();
    let last = Duration::from_secs_f64(last.map_or(0.0, |ms| ms.as_f64() / 1e3));
    let findings = StopFindings {
        items: stopped.chain(background.items()).cloned().collect(),
        engine_acknowledged: turn.cancel_observed(),
        elapsed: Duration::from_millis(between_ms.try_into().unwrap_or_default()) + last,
    };
    Receipt::of_stop(request, findings)
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

#[cfg(test)]
mod tests {
    use allstop_core::Timestamp;
    use allstop_core::receipt::{ItemKind, ReceiptItem};

    use super::*;

    fn receipt(at_ms: i64, items: Vec<ReceiptItem>) -> Receipt {
        let request = StopRequest {
            stop_id: format!("stop_{at_ms}").as_str().into(),
            target: "here".into(),
            extent: Extent::Turn,
            cause: Cause::new(CauseKind::User),
            requested_at: Timestamp::from_unix_ms(at_ms),
        };
        let findings = StopFindings {
            items,
            engine_acknowledged: true,
            elapsed: Duration::from_millis(10),
        };
        Receipt::of_stop(request, findings)
    }

    #[test]
    fn what_the_stop_of_the_turn_left_alone_is_accounted_for_once() {
        let item = |kind, id: &str, state| ReceiptItem::new(kind, id, "sleep 600", state);
        let finished = || ItemState::Finished { after_ms: None };
        let outside = ItemState::StillRunning {
            why: Why::OutsideExtent,
        };
        let call = item(ItemKind::ToolCall, "call_1", finished());
        let left = item(ItemKind::Background, "bg_1", outside);
        let ended = item(ItemKind::Background, "bg_1", finished());
        let turn = receipt(1_000, vec![call.clone(), left]);
        let both = together(&turn, &receipt(1_100, vec![ended.clone()]));
        assert_eq!(both.items(), [call, ended]);
        assert_eq!(both.request().extent, Extent::Process);
        assert_eq!(both.stop_id(), turn.stop_id());
        let whole = Duration::from_millis(110);
        assert_eq!(both.quiet_after_ms(), Some(whole.into()));
        assert!(both.cancel_observed());
    }
}
