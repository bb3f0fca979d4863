//! The model call of one step. The answer is streamed, a stop interrupts the call, and a failed call is retried while
//! the policy and the deadline allow it.

mod partial;
mod receive;

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{EndMethod, EndProof, Evidence, ItemKind};
use allstop_core::record::CallOutcome;
use allstop_core::turn::{Budget, BudgetExceeded, Reservation, StepStart};
use allstop_core::{FinishReason, ToolCall, Usage};
use allstop_model::{
    ConnectionProbe, ConnectionState, ModelError, ModelErrorKind, ModelRequest, TokenLimits,
};
use allstop_scope::{Ending, Registration, WorkSpec};
use futures::StreamExt as _;
use tracing::Instrument as _;

use partial::PartialAnswer;
use receive::{LiveDelivery, receive};

use super::steps::ANSWER_TOKENS_RESERVED;
use super::{RunningTurn, TurnInterrupt};
use crate::event::AgentEvent;

/// A complete answer of the model.
pub(super) struct CompletedAnswer {
    pub(super) text: String,
    pub(super) calls: Vec<ToolCall>,
    pub(super) usage: Usage,
    pub(super) finish: FinishReason,
}

/// Tokens that an answer may cost: the tokens that its step has reserved, and further tokens as long as the budget has
/// some. Tokens are reserved before they are received, so that an endless answer cannot overdraw the budget.
struct AnswerBudget {
    budget: Option<Arc<Budget>>,
    tokens: u64,
    /// Further reserved tokens. They are released when the real usage of the call is known.
    more: Vec<Reservation>,
}

impl AnswerBudget {
    fn cover(&mut self, output_tokens: u64) -> Result<(), BudgetExceeded> {
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

/// End of one attempt.
enum ModelAttempt {
    Answered(CompletedAnswer),
    Failed(ModelError, Usage),
    Interrupted(TurnInterrupt, Usage),
}

impl RunningTurn<'_> {
    /// Calls the model, with retries after transient failures. Only the cost of a failed attempt is kept.
    pub(super) async fn call_model(
        &mut self,
        step: &StepStart,
    ) -> Result<CompletedAnswer, TurnInterrupt> {
        let mut spent = Usage::default();
        let mut attempt = 1;
        loop {
            let span = tracing::info_span!("model_call", step = step.step, attempt);
            let (error, usage) = match self.attempt(step).instrument(span).await {
                ModelAttempt::Answered(mut answer) => {
                    answer.usage += spent;
                    self.cx.controls.meter_model(answer.usage);
                    return Ok(answer);
                }
                ModelAttempt::Interrupted(interrupt, usage) => {
                    self.cx.controls.meter_model(spent + usage);
                    let record = self
                        .draft
                        .abandon_model(CallOutcome::Stopped, spent + usage)?;
                    self.pending.push(record);
                    return Err(interrupt);
                }
                ModelAttempt::Failed(error, usage) => (error, usage),
            };
            spent += usage;
            self.draft.meter(spent);
            let policy = self.parts().settings.retry;
            let Some(delay) = policy.next_delay(attempt, &error, self.scope.time_left()) else {
                return Err(self.fail_model(error, spent)?);
            };
            self.cx.events.send(|| AgentEvent::RetryScheduled {
                step: step.step,
                attempt,
                delay_ms: delay.as_millis() as u64,
                error: error.message.clone(),
            });
            if let Err(interrupt) = Box::pin(self.back_off(delay)).await {
                self.cx.controls.meter_model(spent);
                let record = self.draft.abandon_model(CallOutcome::Stopped, spent)?;
                self.pending.push(record);
                return Err(interrupt);
            }
            attempt += 1;
        }
    }

    fn fail_model(
        &mut self,
        error: ModelError,
        spent: Usage,
    ) -> Result<TurnInterrupt, TurnInterrupt> {
        self.cx.controls.meter_model(spent);
        let outcome = match error.kind {
            ModelErrorKind::ProviderTimeout | ModelErrorKind::ConnectTimeout => {
                CallOutcome::TimedOut
            }
            _ => CallOutcome::Failed,
        };
        let record = self.draft.abandon_model(outcome, spent)?;
        self.pending.push(record);
        Ok(TurnInterrupt::Failed(error.into()))
    }

    async fn back_off(&mut self, delay: Duration) -> Result<(), TurnInterrupt> {
        tokio::select! {
            biased;
            interrupt = self.interrupted() => Err(interrupt),
            () = tokio::time::sleep(delay) => {
                self.record_activity();
                Ok(())
            }
        }
    }

    async fn attempt(&mut self, step: &StepStart) -> ModelAttempt {
        let spec = WorkSpec::new(ItemKind::ModelCall, Arc::clone(&self.cx.parts.model_name))
            .id(step.id.as_str());
        let Ok(registration) = self.work.register(spec) else {
            self.engine.acknowledge();
            return ModelAttempt::Interrupted(TurnInterrupt::Stopped, Usage::default());
        };
        let probe = ConnectionProbe::default();
        let request = self.request(probe.clone());
        let limits = TokenLimits {
            first_token: self.parts().settings.deadlines.first_token,
            between_tokens: self.parts().settings.deadlines.between_tokens,
        };
        let model = Arc::clone(&self.cx.parts.model);
        let work = self.work.clone();
        let delivery = LiveDelivery {
            unless_stopped: &work,
            events: self.cx.events,
        };
        let mut partial = PartialAnswer::new();
        let mut answer_budget = self.answer_budget();
        let ended = {
            let mut receiving =
                std::pin::pin!(receive(&*model, request, limits, &mut partial, delivery));
            let mut interrupted = std::pin::pin!(self.interrupted());
            loop {
                let progressed = tokio::select! {
                    biased;
                    // The interrupt is polled first, so that data that arrives after a stop is not taken.
                    interrupt = &mut interrupted => break Err(interrupt),
                    progressed = receiving.next() => progressed,
                };
                self.record_activity();
                match progressed {
                    Some(Ok(bytes)) => {
                        if let Err(exceeded) = answer_budget.cover(Usage::estimate_tokens(bytes)) {
                            break Err(TurnInterrupt::Refused(exceeded.into()));
                        }
                    }
                    Some(Err(error)) => break Ok(Some(error)),
                    None => break Ok(None),
                }
            }
            // The stream is dropped here. If the answer is incomplete, the connection is dropped too.
        };
        match ended {
            Ok(None) => {
                registration.finish(Ending::Returned);
                let usage = partial.usage(|| self.input_tokens_estimated());
                ModelAttempt::Answered(CompletedAnswer {
                    text: partial.text,
                    calls: partial.calls,
                    usage,
                    finish: partial.finish,
                })
            }
            Ok(Some(error)) => {
                registration.finish(Ending::Returned);
                // A provider that refuses a request does not charge for it. A provider that has begun to answer may
                // charge for the request.
                let usage = if partial.is_refused() {
                    Usage::default()
                } else {
                    partial.usage_when_cut(|| self.input_tokens_estimated())
                };
                ModelAttempt::Failed(error, usage)
            }
            Err(interrupt) => {
                // The receipt of the stop begins while the call is registered, so that the receipt lists the call.
                let (cause, ..) = self.why(&interrupt);
                let _account = self.begin_account(cause);
                let mut registration = registration;
                registration.acknowledge(partial.checkpoint);
                let late = Usage::estimate_tokens(partial.bytes_after_stop);
                registration.details_mut().tokens_received_after_stop = Some(late);
                Box::pin(verify_closed(registration, &probe, partial.checkpoint)).await;
                let usage = partial.usage_when_cut(|| self.input_tokens_estimated());
                self.activity.keep_answer(partial.text);
                ModelAttempt::Interrupted(interrupt, usage)
            }
        }
    }

    /// Tokens that the step has reserved for the answer.
    fn answer_budget(&self) -> AnswerBudget {
        let settings = &self.parts().settings;
        AnswerBudget {
            budget: settings.budget.clone(),
            tokens: settings.output_tokens_max.unwrap_or(ANSWER_TOKENS_RESERVED),
            more: Vec::new(),
        }
    }

    fn request(&self, probe: ConnectionProbe) -> ModelRequest {
        let settings = &self.parts().settings;
        let system = match (&settings.system, self.cx.context) {
            (Some(system), Some(context)) => Some(format!("{system}\n\n{context}").into()),
            (system, context) => system.as_ref().or(context).map(Arc::clone),
        };
        ModelRequest {
            system,
            messages: self.draft.request_messages(),
            tools: Arc::clone(&self.cx.parts.tools.now().declarations),
            max_output_tokens: settings.output_tokens_max,
            probe,
        }
    }
}

/// Determines the end of a dropped call from the state of its connection in the kernel, not by assumption.
async fn verify_closed(
    mut registration: Registration,
    probe: &ConnectionProbe,
    checkpoint: &'static str,
) {
    let (how, evidence) = match probe.closed().await {
        ConnectionState::Closed => (
            EndMethod::ConnectionClosed,
            Evidence::verified(EndProof::SocketClosed),
        ),
        // The provider's answer was complete, or no connection was opened. Only our future was dropped.
        ConnectionState::NeverOpened | ConnectionState::ReturnedToPool => (
            EndMethod::Dropped,
            Evidence::verified(EndProof::FutureDropped),
        ),
        ConnectionState::NotVerifiable => {
            registration.details_mut().note =
                Some("its connection cannot be verified; our side of it was dropped".into());
            (
                EndMethod::Dropped,
                Evidence::verified(EndProof::FutureDropped),
            )
        }
        ConnectionState::StillOpen => return registration.finish(Ending::NotConfirmed),
    };
    let evidence = evidence.and_observed_at(checkpoint);
    registration.finish(Ending::Stopped { how, evidence });
}
