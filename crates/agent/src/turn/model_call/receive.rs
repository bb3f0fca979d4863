//! The work of a model call, which runs beside the engine: it receives the answer until the answer is complete or a
//! stop covers the call. A model that blocks its thread or panics therefore delays neither a stop nor a deadline.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allstop_core::Usage;
use allstop_core::receipt::{EndMethod, EndProof, Evidence};
use allstop_core::turn::{Budget, BudgetExceeded, Reservation};
use allstop_model::{
    CALLS_MAX, ConnectionProbe, ConnectionState, FinishReason, Model, ModelError, ModelErrorKind,
    ModelEvent, ModelRequest, TokenLimits, stream_within,
};
use allstop_scope::{Ending, Registration, Scope};
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::SetOnce;

use super::partial::PartialAnswer;
use crate::activity::ActivityTimer;
use crate::event::EventSink;
use crate::turn::steps::ANSWER_TOKENS_RESERVED;

/// Answer of a running model call, shared by the call and the engine.
pub(super) struct SharedAnswer {
    pub(super) partial: Mutex<PartialAnswer>,
    /// Set if the answer exceeds the budget. The call then waits until the engine stops it.
    pub(super) exceeded: SetOnce<BudgetExceeded>,
    /// Locked while a piece of the answer is shown.
    showing: Mutex<()>,
    is_hidden: AtomicBool,
}

/// Maximum wait of a stop for an observer that receives a piece of the answer.
const SHOW_MAX: Duration = Duration::from_millis(10);

/// Maximum wait of a stop for the end of the connection. The task of the HTTP library closes a dropped stream at its next
/// poll. Half a second is a thousand times the usual time, and much shorter than the time limit of a forced stop.
const CLOSE_WAIT_MAX: Duration = Duration::from_millis(500);

/// Like [`CLOSE_WAIT_MAX`], after a call was dropped by force. It is shorter than the shortest round of force, so that the
/// receipt contains the result.
const CLOSE_AFTER_FORCE_MAX: Duration = Duration::from_millis(30);

/// Note of a call whose connection cannot be verified.
const NOT_VERIFIABLE: &str = "its connection cannot be verified; our side of it was dropped";
/// Note of a call with work in another program, such as the transport of its request. The end of this work is unknown.
const OUTSIDE_WORK_LOST: &str =
    "another program worked for this call and did not report the end; its work may still run";

impl SharedAnswer {
    pub(super) fn new() -> Self {
        Self {
            partial: Mutex::new(PartialAnswer::new()),
            exceeded: SetOnce::new(),
            showing: Mutex::new(()),
            is_hidden: AtomicBool::new(false),
        }
    }

    fn show(&self, send: impl FnOnce()) {
        let _showing = self.showing.lock();
        if !self.is_hidden.load(Ordering::Acquire) {
            send();
        }
    }

    /// From now on, no piece of the answer is shown. Waits for a piece that is being shown, but not long for an observer
    /// that blocks.
    pub(super) fn hide(&self) {
        self.is_hidden.store(true, Ordering::Release);
        drop(self.showing.try_lock_for(SHOW_MAX));
    }
}

/// End of the work of a model call.
pub(super) enum ModelCallEnd {
    Answered,
    Failed(ModelError),
    /// A stop covers the call.
    Stopped,
}

/// The work of one model call.
pub(super) struct AnswerReceiver {
    pub(super) model: Arc<dyn Model>,
    pub(super) request: ModelRequest,
    pub(super) limits: TokenLimits,
    /// Scope whose stop ends the call.
    pub(super) work: Scope,
    pub(super) events: EventSink,
    /// Timer of the inactivity limit, if there is one.
    pub(super) activity: Option<Arc<ActivityTimer>>,
    pub(super) budget: AnswerBudget,
    pub(super) answer: Arc<SharedAnswer>,
}

impl AnswerReceiver {
    /// Receives the answer, and records the end of the call.
    pub(super) async fn receive(mut self, registration: Registration) -> ModelCallEnd {
        let call = RegisteredCall {
            registration: Some(registration),
            probe: self.request.probe.clone(),
        };
        let end = {
            let work = self.work.clone();
            let mut stopped = pin!(work.stopped());
            tokio::select! {
                biased;
                // The stop is polled first, so that data that arrives after a stop is not taken.
                () = &mut stopped => ModelCallEnd::Stopped,
                end = self.receive_answer() => end,
            }
            // The stream is dropped here. If the answer is incomplete, the connection is dropped too.
        };
        match &end {
            ModelCallEnd::Answered | ModelCallEnd::Failed(_) => call.finish(Ending::Returned),
            ModelCallEnd::Stopped => Box::pin(self.record_stop(call)).await,
        }
        end
    }

    async fn receive_answer(&mut self) -> ModelCallEnd {
        let request = self.request.clone();
        let mut stream = match stream_within(&*self.model, request, self.limits).await {
            Ok(stream) => stream,
            Err(error) => return ModelCallEnd::Failed(error),
        };
        self.answer.partial.lock().checkpoint = "first_token";
        loop {
            self.record_activity();
            let event = match stream.events.next().await {
                None => return ModelCallEnd::Failed(cut()),
                Some(Err(error)) => return ModelCallEnd::Failed(error),
                Some(Ok(ModelEvent::End(finish))) => return self.finish(finish),
                Some(Ok(event)) => event,
            };
            if let Err(end) = self.take(event).await {
                return end;
            }
            // A model whose events are always ready must leave its thread to timers from time to time.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Takes one piece of the answer. A piece that arrives after a stop, or after a deadline, is counted but not shown.
    async fn take(&mut self, event: ModelEvent) -> Result<(), ModelCallEnd> {
        let is_late = self.work.is_stopped() || self.work.is_overdue();
        let (live, bytes) = {
            let mut partial = self.answer.partial.lock();
            if matches!(event, ModelEvent::ToolCall(_)) && partial.calls.len() >= CALLS_MAX {
                return Err(ModelCallEnd::Failed(too_many_calls()));
            }
            partial.checkpoint = "stream_chunk";
            let bytes_before = partial.bytes;
            let live = partial.take(event);
            if is_late {
                partial.bytes_after_stop += partial.bytes - bytes_before;
            }
            (live, partial.bytes)
        };
        if is_late {
            self.work.stopped_if_overdue().await;
            if self.work.is_stopped() {
                return Err(ModelCallEnd::Stopped);
            }
        }
        if let Some(live) = live {
            self.answer.show(|| self.events.send(|| live));
        }
        if let Err(exceeded) = self.budget.reserve_for(Usage::estimate_tokens(bytes)) {
            let _only_this_call_sets_it = self.answer.exceeded.set(exceeded);
            self.work.stopped().await;
            return Err(ModelCallEnd::Stopped);
        }
        Ok(())
    }

    fn finish(&self, finish: FinishReason) -> ModelCallEnd {
        let mut partial = self.answer.partial.lock();
        let is_empty = partial.text.is_empty() && partial.calls.is_empty();
        if finish == FinishReason::ContentFilter && is_empty {
            return ModelCallEnd::Failed(filtered());
        }
        partial.finish = finish;
        ModelCallEnd::Answered
    }

    fn record_activity(&self) {
        if let Some(activity) = &self.activity {
            activity.record_activity();
        }
    }

    /// Records the end of a stopped call, with the state of its connection in the kernel as evidence.
    async fn record_stop(&self, mut call: RegisteredCall) {
        let (checkpoint, late) = {
            let partial = self.answer.partial.lock();
            (partial.checkpoint, partial.bytes_after_stop)
        };
        if let Some(registration) = &mut call.registration {
            registration.acknowledge(checkpoint);
            registration.details_mut().tokens_received_after_stop =
                Some(Usage::estimate_tokens(late));
        }
        let state = call.probe.closed(CLOSE_WAIT_MAX).await;
        if let Some(registration) = &mut call.registration
            && let Some(note) = note_of(state)
        {
            registration.details_mut().note = Some(note.into());
        }
        call.finish(match end_of(state) {
            Some((how, proof)) => {
                let evidence = Evidence::verified(proof).and_observed_at(checkpoint);
                Ending::Stopped { how, evidence }
            }
            None => Ending::NotConfirmed,
        });
    }
}

/// The registration of a model call. If the call is dropped by force, its connection decides what its ending is.
struct RegisteredCall {
    /// `None` after the end was recorded.
    registration: Option<Registration>,
    probe: ConnectionProbe,
}

impl RegisteredCall {
    fn finish(mut self, ending: Ending) {
        if let Some(registration) = self.registration.take() {
            registration.finish(ending);
        }
    }
}

impl Drop for RegisteredCall {
    fn drop(&mut self) {
        let Some(registration) = self.registration.take() else {
            return;
        };
        let may_run = matches!(
            self.probe.look(),
            ConnectionState::StillOpen | ConnectionState::Lost
        );
        if std::thread::panicking() || !may_run {
            // The registration records that the call panicked or was dropped.
            return;
        }
        // The HTTP library closes the connection a moment after the call was dropped, or is still sending the request.
        let probe = self.probe.clone();
        registration.finish_later(async move {
            match end_of(probe.closed(CLOSE_AFTER_FORCE_MAX).await) {
                Some((how, proof)) => Ending::Stopped {
                    how,
                    evidence: Evidence::verified(proof),
                },
                None => Ending::NotConfirmed,
            }
        });
    }
}

/// Note about a call whose end was not seen.
fn note_of(state: ConnectionState) -> Option<&'static str> {
    match state {
        ConnectionState::NotVerifiable => Some(NOT_VERIFIABLE),
        ConnectionState::Lost => Some(OUTSIDE_WORK_LOST),
        _ => None,
    }
}

/// Method and proof of the end of a stopped call; `None` if the call may still run.
fn end_of(state: ConnectionState) -> Option<(EndMethod, EndProof)> {
    match state {
        ConnectionState::Closed => Some((EndMethod::ConnectionClosed, EndProof::SocketClosed)),
        // The provider's answer was complete, or no connection was opened, or the connection cannot be verified. Only
        // our future was dropped.
        ConnectionState::NeverOpened
        | ConnectionState::ReturnedToPool
        | ConnectionState::NotVerifiable => Some((EndMethod::Dropped, EndProof::FutureDropped)),
        ConnectionState::StillOpen | ConnectionState::Lost => None,
    }
}

/// Tokens that an answer may cost: the tokens that its step has reserved, and further tokens as long as the budget has
/// some. Tokens are reserved before they are received, so that an endless answer cannot overdraw the budget.
pub(super) struct AnswerBudget {
    pub(super) budget: Option<Arc<Budget>>,
    pub(super) tokens: u64,
    /// Further reserved tokens. They are released when the real usage of the call is known.
    pub(super) more: Vec<Reservation>,
}

impl AnswerBudget {
    fn reserve_for(&mut self, output_tokens: u64) -> Result<(), BudgetExceeded> {
        let Some(budget) = &self.budget else {
            return Ok(());
        };
        while output_tokens > self.tokens {
            self.more.push(budget.reserve(ANSWER_TOKENS_RESERVED)?);
            self.tokens += ANSWER_TOKENS_RESERVED;
        }
        Ok(())
    }
}

fn cut() -> ModelError {
    ModelError::new(
        ModelErrorKind::Disconnected,
        "the answer is incomplete: the stream ended early".to_owned(),
    )
}

fn too_many_calls() -> ModelError {
    ModelError::new(
        ModelErrorKind::Protocol,
        format!("the model requested more than {CALLS_MAX} calls at once"),
    )
}

fn filtered() -> ModelError {
    ModelError::new(
        ModelErrorKind::Invalid,
        "the provider's content filter refused to answer".to_owned(),
    )
}
