//! The loop: model call → tool calls → next step, until an answer requests no tool.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::turn::{NextAction, TurnStart};
use allstop_core::{Cause, CauseKind, Extent, Usage};
use allstop_scope::{Deadline, Placement, ScopeOptions, catch_panic, instant_after};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{RunningTurn, TurnInterrupt};
use crate::event::AgentEvent;
use crate::guardrail::{Guardrail, GuardrailStage, GuardrailVerdict};
use crate::hook::HookEvent;
use crate::spans::WorkSpan;
use crate::user_code::{self, UserCodeResult};

/// Number of tokens that are reserved for an answer if the call has no limit of output tokens. This is about a page,
/// enough for most answers.
pub(super) const ANSWER_TOKENS_RESERVED: u64 = 1024;

impl RunningTurn<'_> {
    /// Runs steps until there is a final answer to commit.
    pub(super) async fn steps(&mut self, start: &TurnStart) -> Result<Arc<str>, TurnInterrupt> {
        let input = self.call_start_hooks(start).await?;
        self.guard(GuardrailStage::Input, &input).await?;
        loop {
            let step = self.draft.state().steps() + 1;
            let span = WorkSpan::step(self.parts(), step);
            if let Some(answer) = self.step().instrument(span.span.clone()).await? {
                return Ok(answer);
            }
        }
    }

    /// Runs one step: the model call, then the tool calls. Returns the final answer, if this was the last step.
    async fn step(&mut self) -> Result<Option<Arc<str>>, TurnInterrupt> {
        self.open_step()?;
        self.take_steered()?;
        let estimate = self.estimate_tokens();
        let at = self.now();
        let model_name = self.parts().model_name();
        let step = self.draft.begin_step(&model_name, estimate, at)?;
        self.cx.controls.begin_step();
        self.activity.begin_step();
        self.pending.push(step.record.clone());
        self.call_hooks_or_fail(HookEvent::ModelStart { step: step.step })
            .await?;
        self.flush().await?;
        self.cx.events.send(|| AgentEvent::StepStarted {
            step: step.step,
            model: model_name,
            is_guarded: self.parts().settings.answer.is_some()
                || self.checks(GuardrailStage::Output),
        });
        let answer = self.call_model(&step).await?;
        let text: Arc<str> = answer.text.into();
        let model = self.draft.finish_model(
            Arc::clone(&text),
            answer.calls,
            answer.usage,
            answer.finish,
        )?;
        self.finish = answer.finish;
        self.pending.push(model.record);
        self.work.stopped_if_overdue().await;
        if self.work.is_stopped() {
            // The answer was complete before the stop was noticed, so the answer is logged, but no longer shown.
            self.engine.acknowledge();
            return Err(TurnInterrupt::Stopped);
        }
        self.cx.events.send(|| AgentEvent::StepAnswered {
            step: step.step,
            text: Arc::clone(&text),
            finish: answer.finish,
            calls: match &model.next {
                NextAction::Commit => Arc::default(),
                NextAction::Calls(calls) => calls.as_slice().into(),
            },
        });
        self.call_hooks_or_fail(HookEvent::ModelEnd {
            step: step.step,
            text: Arc::clone(&text),
        })
        .await?;
        match model.next {
            NextAction::Commit => {
                let Some(text) = self.check_answer(text).await? else {
                    return Ok(None);
                };
                self.guard(GuardrailStage::Output, &text).await?;
                if self.prolong(&text).await? {
                    return Ok(None);
                }
                // A message that arrived in the meantime also needs an answer, so the turn continues.
                Ok(self.cx.controls.close_if_empty().then_some(text))
            }
            NextAction::Calls(calls) => {
                self.run_calls(calls).await?;
                Ok(None)
            }
        }
    }

    /// Takes the messages that arrived since the last step. Messages that the turn refuses because of a stop are put
    /// back, so that each message is either in the turn or undelivered.
    fn take_steered(&mut self) -> Result<(), TurnInterrupt> {
        let mut messages = self.cx.controls.take_steered().into_iter();
        while let Some(message) = messages.next() {
            let at = self.now();
            let (text, images) = (Arc::clone(&message.text), message.images.clone());
            match self.draft.steer(message.id.clone(), text, images, at) {
                Ok(record) => self.pending.push(record),
                Err(refused) => {
                    let back = std::iter::once(message).chain(messages);
                    self.cx.controls.give_back(back);
                    return Err(refused.into());
                }
            }
        }
        Ok(())
    }

    /// Opens a scope for the step, if steps have a deadline.
    fn open_step(&mut self) -> Result<(), TurnInterrupt> {
        let Some(limit) = self.parts().settings.deadlines.step else {
            return Ok(());
        };
        let deadline = Deadline {
            at: instant_after(Instant::now(), limit),
            stops: Some(self.scope.clone()),
            detail: format!("step deadline of {limit:?}").into(),
            extent: Extent::Turn,
            bystanders: Vec::new(),
        };
        let options = ScopeOptions::default()
            .deadline(deadline)
            .placement(Placement::Shared);
        let label = self.scope.label();
        let work = self
            .scope
            .child(label, options)
            .map_err(|_| TurnInterrupt::Stopped)?;
        let former = std::mem::replace(&mut self.work, work);
        // Before the first step, `former` is the scope of the turn, which stays open.
        if self.draft.state().steps() > 0 {
            former.close();
        }
        Ok(())
    }

    /// Tokens to reserve for the next model call; 0 without a budget.
    fn estimate_tokens(&self) -> u64 {
        let settings = &self.parts().settings;
        if settings.budget.is_none() {
            return 0;
        }
        let answer = settings.output_tokens_max.unwrap_or(ANSWER_TOKENS_RESERVED);
        self.input_tokens_estimated().saturating_add(answer)
    }

    /// Estimated tokens of the request, for providers that report no usage.
    pub(super) fn input_tokens_estimated(&self) -> u64 {
        let system = self
            .parts()
            .settings
            .system
            .as_ref()
            .map_or(0, |text| text.len());
        let context = self.cx.context.map_or(0, |text| text.len());
        let messages = self.view.apply(&self.draft.request_messages());
        let messages: usize = messages.iter().map(|message| message.bytes()).sum();
        Usage::estimate_tokens(system + context + messages)
    }

    /// True if a guardrail checks this stage.
    fn checks(&self, stage: GuardrailStage) -> bool {
        let mut guardrails = self.parts().guardrails.iter();
        guardrails.any(|guardrail| wants(&**guardrail, stage))
    }

    async fn guard(&self, stage: GuardrailStage, text: &Arc<str>) -> Result<(), TurnInterrupt> {
        for guardrail in &self.parts().guardrails {
            if !wants(&**guardrail, stage) {
                continue;
            }
            let name = Arc::clone(guardrail.name());
            let span = WorkSpan::guardrail(self.parts(), &name, stage);
            let check = {
                let (guardrail, cx) = (Arc::clone(guardrail), self.hook_cx(&self.work));
                let text = Arc::clone(text);
                async move { guardrail.check(&cx, stage, text).await }.instrument(span.span.clone())
            };
            let refusal = match Box::pin(user_code::run(
                &self.work,
                ItemKind::Guardrail,
                name,
                "guardrail",
                check,
            ))
            .await
            {
                UserCodeResult::Answered(GuardrailVerdict::Pass) => {
                    span.record_verdict("pass");
                    continue;
                }
                UserCodeResult::Answered(GuardrailVerdict::Refuse { reason }) => {
                    span.record_verdict("refuse");
                    reason
                }
                // Guardrails fail closed.
                UserCodeResult::Panicked => format!("the guardrail {} panicked", guardrail.name()),
                UserCodeResult::Stopped => {
                    self.engine.acknowledge();
                    return Err(TurnInterrupt::Stopped);
                }
            };
            return Err(TurnInterrupt::Guardrail(refusal));
        }
        Ok(())
    }

    /// Records a sign of activity.
    pub(super) fn record_activity(&self) {
        if self.parts().settings.deadlines.inactivity.is_some() {
            self.activity.record_activity();
        }
    }

    /// Waits until a stop covers the running work, or the inactivity limit has passed. Without an inactivity limit, the
    /// only cost is a waiter on the scope's signal.
    pub(super) async fn interrupted(&self) -> TurnInterrupt {
        let silent = async {
            match self.parts().settings.deadlines.inactivity {
                None => std::future::pending().await,
                Some(limit) => {
                    let mut at = instant_after(self.activity.last_activity(), limit);
                    while Instant::now() < at {
                        tokio::time::sleep_until(at).await;
                        at = instant_after(self.activity.last_activity(), limit);
                    }
                    inactivity(limit)
                }
            }
        };
        tokio::select! {
            biased;
            () = self.work.stopped() => {
                self.engine.acknowledge();
                TurnInterrupt::Stopped
            }
            cause = silent => TurnInterrupt::Inactivity(cause),
        }
    }
}

/// True if the guardrail checks this stage. A guardrail whose `wants` panics is called, and refuses if `check` panics too.
fn wants(guardrail: &dyn Guardrail, stage: GuardrailStage) -> bool {
    catch_panic("Guardrail::wants", || guardrail.wants(stage)) != Some(false)
}

fn inactivity(limit: Duration) -> Cause {
    Cause::new(CauseKind::Inactivity).detail(format!("no activity for {limit:?}"))
}
