//! The model call of one step. The answer is streamed, a stop interrupts the call, and a failed call is retried while
//! the policy and the deadline allow it.

mod fit;
mod partial;
mod receive;

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::record::CallOutcome;
use allstop_core::turn::StepStart;
use allstop_core::{FinishReason, ToolCall, Usage};
use allstop_model::{
    ConnectionProbe, ModelError, ModelErrorKind, ModelRequest, RequestSettings, TokenLimits,
    ToolChoice,
};
use allstop_scope::{WorkHandle, WorkLost, WorkSpec};
use tracing::Instrument as _;

use receive::{AnswerBudget, AnswerReceiver, ModelCallEnd, SharedAnswer};

use super::steps::ANSWER_TOKENS_RESERVED;
use super::{RunningTurn, TurnInterrupt};
use crate::event::AgentEvent;
use crate::spans::WorkSpan;

/// A complete answer of the model.
pub(super) struct CompletedAnswer {
    pub(super) text: String,
    pub(super) calls: Vec<ToolCall>,
    pub(super) usage: Usage,
    pub(super) finish: FinishReason,
}

/// End of one attempt.
enum ModelAttempt {
    Answered(CompletedAnswer),
    Failed(ModelError, Usage),
    Interrupted(TurnInterrupt, Usage),
}

impl RunningTurn<'_> {
    /// Calls the model, with retries after transient failures. Of a failed attempt, only the cost is kept.
    pub(super) async fn call_model(
        &mut self,
        step: &StepStart,
    ) -> Result<CompletedAnswer, TurnInterrupt> {
        let mut spent = self.fit_request(step.step).await.usage;
        self.draft.meter(spent);
        let mut was_refused = false;
        let mut attempt = 1;
        loop {
            if self.work.is_stopped() {
                return Err(self.abandon_stopped(spent)?);
            }
            if let Some(problem) = self.settings_problem() {
                let error = ModelError::new(ModelErrorKind::Invalid, problem);
                return Err(self.fail_model(error, spent)?);
            }
            let span = WorkSpan::model_call(self.parts(), attempt);
            span.record_request(|| self.view.apply(&self.draft.request_messages()));
            let attempted = self.attempt(step).instrument(span.span.clone()).await;
            let (error, usage) = match attempted {
                ModelAttempt::Answered(mut answer) => {
                    span.record_usage(answer.usage);
                    span.record_finish(answer.finish, !answer.calls.is_empty());
                    span.record_answer(&answer.text, &answer.calls);
                    answer.usage += spent;
                    self.cx.controls.meter_model(answer.usage);
                    return Ok(answer);
                }
                ModelAttempt::Interrupted(interrupt, usage) => {
                    span.record_usage(usage);
                    span.record_cause(&self.why(&interrupt).0);
                    self.cx.controls.meter_model(spent + usage);
                    let record = self
                        .draft
                        .abandon_model(CallOutcome::Stopped, spent + usage)?;
                    self.pending.push(record);
                    return Err(interrupt);
                }
                ModelAttempt::Failed(error, usage) => {
                    span.record_usage(usage);
                    span.record_model_error(error.kind);
                    (error, usage)
                }
            };
            drop(span);
            spent += usage;
            self.draft.meter(spent);
            if error.kind == ModelErrorKind::ContextLength && !was_refused {
                was_refused = true;
                let fit = self.fit_refused_request(step.step).await;
                spent += fit.usage;
                self.draft.meter(spent);
                if fit.is_shorter || self.work.is_stopped() {
                    self.cx.events.send(|| AgentEvent::RetryScheduled {
                        step: step.step,
                        attempt,
                        delay_ms: 0,
                        error: error.message.clone(),
                    });
                    attempt += 1;
                    continue;
                }
            }
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

    /// Ends the model call of a step that a stop reached before the next attempt.
    fn abandon_stopped(&mut self, spent: Usage) -> Result<TurnInterrupt, TurnInterrupt> {
        self.engine.acknowledge();
        self.cx.controls.meter_model(spent);
        let record = self.draft.abandon_model(CallOutcome::Stopped, spent)?;
        self.pending.push(record);
        Ok(TurnInterrupt::Stopped)
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
        let answer = Arc::new(SharedAnswer::new());
        let receiver = self.receiver(Arc::clone(&answer));
        let spec =
            WorkSpec::new(ItemKind::ModelCall, self.parts().model_name()).id(step.id.as_str());
        let spawned = self.work.spawn_reporting(spec, |registration| {
            receiver.receive(registration).in_current_span()
        });
        let Ok(mut call) = spawned else {
            self.engine.acknowledge();
            return ModelAttempt::Interrupted(TurnInterrupt::Stopped, Usage::default());
        };
        let interrupt = tokio::select! {
            biased;
            interrupt = self.interrupted() => interrupt,
            exceeded = answer.exceeded.wait() => TurnInterrupt::Refused((*exceeded).into()),
            end = &mut call => match self.call_end(end) {
                ModelCallEnd::Answered => return ModelAttempt::Answered(self.completed(&answer)),
                ModelCallEnd::Failed(error) => {
                    return ModelAttempt::Failed(error, self.usage_of_failed(&answer));
                }
                ModelCallEnd::Stopped => TurnInterrupt::Stopped,
            },
        };
        answer.hide();
        self.wait_for_stopped_call(&interrupt, call).await;
        let mut partial = answer.partial.lock();
        let usage = partial.usage_when_cut(|| self.input_tokens_estimated());
        self.activity.keep_answer(std::mem::take(&mut partial.text));
        ModelAttempt::Interrupted(interrupt, usage)
    }

    /// Begins the receipt of the stop while the call is registered, so that the receipt lists the call. Then waits for
    /// the call, but only as long as the stop takes: a model that blocks its thread does not hold up the turn.
    async fn wait_for_stopped_call(
        &mut self,
        interrupt: &TurnInterrupt,
        call: WorkHandle<ModelCallEnd>,
    ) {
        let (cause, ..) = self.why(interrupt);
        if let Some(account) = self.begin_account(cause) {
            tokio::select! {
                biased;
                _end = call => {}
                _call_is_in_the_receipt = account.receipt() => {}
            }
        }
    }

    /// End of the call. If the call has no result, the reason is a failure or a stop.
    fn call_end(&self, end: Result<ModelCallEnd, WorkLost>) -> ModelCallEnd {
        let lost = match end {
            Ok(end) => return end,
            Err(_) if self.work.is_stopped() => return ModelCallEnd::Stopped,
            Err(lost) => lost,
        };
        let name = self.parts().model.name();
        ModelCallEnd::Failed(match lost {
            WorkLost::Panicked => ModelError::new(
                ModelErrorKind::Panicked,
                format!("the model {name} panicked"),
            ),
            WorkLost::Dropped | WorkLost::NoThread => ModelError::new(
                ModelErrorKind::Disconnected,
                format!("the call of the model {name} was dropped, because its runtime has ended"),
            ),
        })
    }

    fn completed(&self, answer: &SharedAnswer) -> CompletedAnswer {
        let mut partial = answer.partial.lock();
        CompletedAnswer {
            usage: partial.usage(|| self.input_tokens_estimated()),
            text: std::mem::take(&mut partial.text),
            calls: std::mem::take(&mut partial.calls),
            finish: partial.finish,
        }
    }

    /// Usage of a failed call. A provider that refuses a request does not charge for it. A provider that has begun to
    /// answer may charge for the request.
    fn usage_of_failed(&self, answer: &SharedAnswer) -> Usage {
        let partial = answer.partial.lock();
        if partial.is_refused() {
            Usage::default()
        } else {
            partial.usage_when_cut(|| self.input_tokens_estimated())
        }
    }

    fn receiver(&self, answer: Arc<SharedAnswer>) -> AnswerReceiver {
        let settings = &self.parts().settings;
        let deadlines = &settings.deadlines;
        AnswerReceiver {
            model: Arc::clone(&self.cx.parts.model),
            request: self.request(ConnectionProbe::default()),
            limits: TokenLimits::default()
                .first_token(deadlines.first_token)
                .between_tokens(deadlines.between_tokens),
            work: self.work.clone(),
            events: self.cx.events.clone(),
            activity: deadlines.inactivity.map(|_| Arc::clone(&self.activity)),
            budget: self.answer_budget(),
            answer,
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

    /// The settings of the request. A choice that requires a call is only for the first step of the turn: with it, no step
    /// could end the turn.
    fn request_settings(&self) -> Arc<RequestSettings> {
        let settings = &self.parts().settings;
        let mut request = Arc::clone(&settings.request);
        let requires_call = matches!(
            request.tool_choice,
            ToolChoice::Required | ToolChoice::Tool(_)
        );
        if requires_call && self.draft.state().steps() > 1 {
            Arc::make_mut(&mut request).tool_choice = ToolChoice::Auto;
        }
        request
    }

    /// The first setting that no request can contain, for people.
    fn settings_problem(&self) -> Option<String> {
        let tools = self.cx.parts.tools.now();
        self.request_settings().problem(&tools.declarations)
    }

    fn request(&self, probe: ConnectionProbe) -> ModelRequest {
        let settings = &self.parts().settings;
        let system = match (&settings.system, self.cx.context) {
            (Some(system), Some(context)) => Some(format!("{system}\n\n{context}").into()),
            (system, context) => system.as_ref().or(context).map(Arc::clone),
        };
        ModelRequest::new(self.view.apply(&self.draft.request_messages()))
            .system(system)
            .tools(Arc::clone(&self.cx.parts.tools.now().declarations))
            .max_output_tokens(settings.output_tokens_max)
            .output_schema(
                settings
                    .answer
                    .as_ref()
                    .map(|format| format.schema().clone()),
            )
            .settings(self.request_settings())
            .session(self.history.session_id().clone())
            .headers(self.headers.clone())
            .probe(probe)
    }
}
