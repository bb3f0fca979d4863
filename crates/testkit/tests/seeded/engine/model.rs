//! The model call of a step. The call and a stop race against each other.

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::receipt::{EndMethod, EndProof, Evidence, ItemKind};
use allstop_core::record::{CallOutcome, SessionRecord, StartedCallKind};
use allstop_core::{CallId, Cause, CauseKind, FinishReason, Message, ToolCall, Usage};
use allstop_model::{ModelError, ModelEvent, ModelRequest};
use allstop_scope::{Ending, WorkSpec};
use futures::StreamExt as _;

use super::turn::{Interrupt, OpenStep, Turn};
use crate::bug::Bug;

/// Tokens that a model call reserves in a budget.
const TOKENS_RESERVED: u64 = 100;

/// The part of an answer that has arrived.
#[derive(Default)]
struct Partial {
    text: String,
    calls: Vec<ToolCall>,
    usage: Usage,
}

enum Received {
    Whole,
    Failed(ModelError),
    Stopped,
}

impl Turn<'_> {
    /// Calls the model. Returns the text and the tool calls of the answer.
    pub(super) async fn call_model(&mut self) -> Result<(Arc<str>, Vec<ToolCall>), Interrupt> {
        let reservation = self.reserve(TOKENS_RESERVED)?;
        self.steps += 1;
        let id = CallId::from(format!("step_{}", self.steps));
        let name = self.cx.parts.model.name();
        let kind = StartedCallKind::Model {
            reserved_tokens: TOKENS_RESERVED,
        };
        self.note_start(&id, name, kind);
        self.flush().await?;
        let mut partial = Partial::default();
        let received = self.receive(&id, &mut partial).await;
        let (outcome, usage) = match &received {
            Received::Whole => (CallOutcome::Succeeded, partial.usage),
            Received::Failed(_) => (CallOutcome::Failed, partial.usage),
            // The seeded bug: a call without a result counts as a call without usage.
            Received::Stopped if self.has(Bug::UsageReset) => {
                (CallOutcome::Stopped, Usage::default())
            }
            Received::Stopped => (CallOutcome::Stopped, partial.usage),
        };
        match reservation {
            Some(kept) if outcome == CallOutcome::Stopped && self.has(Bug::KeptReservation) => {
                self.cx.parts.forgotten.lock().push(kept);
            }
            Some(reservation) if self.has(Bug::TokensBesideBudget) => {
                reservation.settle(Usage::default());
            }
            Some(reservation) => reservation.settle(usage),
            None => {}
        }
        self.metered += usage;
        self.open.retain(|open| *open != id);
        let bill = SessionRecord::CallFinished {
            turn: self.number,
            id,
            outcome,
            usage: Some(usage),
            finish: None,
            exit_code: None,
            result: None,
        };
        if self.has(Bug::BillAtTheEnd) && !partial.calls.is_empty() {
            self.bill = Some(bill);
        } else {
            self.pending.push(bill);
        }
        let text: Arc<str> = partial.text.into();
        match received {
            Received::Whole => {}
            Received::Failed(error) => {
                let cause = Cause::new(CauseKind::Failure).detail(error.message);
                return Err(Interrupt::Own(cause));
            }
            Received::Stopped => {
                if self.has(Bug::HalfCallAnswered) && !partial.calls.is_empty() {
                    self.step = Some(OpenStep::new(text, partial.calls));
                }
                return Err(Interrupt::Stopped);
            }
        }
        self.answered += usage;
        if !self.scope.is_stopped() {
            let step = self.steps;
            let event = AgentEvent::StepAnswered {
                step,
                text: Arc::clone(&text),
                finish: FinishReason::Done,
                calls: Arc::default(),
            };
            self.cx.events.send(|| event);
        }
        Ok((text, partial.calls))
    }

    async fn receive(&mut self, id: &CallId, partial: &mut Partial) -> Received {
        let spec = WorkSpec::new(ItemKind::ModelCall, self.cx.parts.model.name()).id(id.as_str());
        let Ok(registration) = self.scope.register(spec) else {
            return Received::Stopped;
        };
        let model = Arc::clone(&self.cx.parts.model);
        let (scope, deaf) = (self.scope.clone(), self.drinks_up());
        let messages = self.request_messages();
        let stopped = async {
            if deaf {
                std::future::pending::<()>().await;
            }
            scope.stopped().await;
        };
        let receiving = async {
            let mut stream = model.stream(ModelRequest::new(messages)).await?;
            while let Some(event) = stream.events.next().await {
                match event? {
                    ModelEvent::End(_) => return Ok(()),
                    event => self.take(event, partial),
                }
            }
            Ok(())
        };
        let received = tokio::select! {
            biased;
            () = stopped => Received::Stopped,
            received = receiving => match received {
                Err(error) => Received::Failed(error),
                Ok(()) if deaf && scope.is_stopped() => Received::Stopped,
                Ok(()) => Received::Whole,
            },
        };
        let ending = match received {
            Received::Stopped => {
                registration.acknowledge("model_chunk");
                Ending::Stopped {
                    how: EndMethod::Dropped,
                    evidence: Evidence::verified(EndProof::FutureDropped),
                }
            }
            _ => Ending::Returned,
        };
        registration.finish(ending);
        received
    }

    /// True if the engine receives an answer to its end even after a stop.
    fn drinks_up(&self) -> bool {
        self.has(Bug::AnswerShownAfterStop) || self.has(Bug::AnswerDrained)
    }

    fn take(&self, event: ModelEvent, partial: &mut Partial) {
        match event {
            ModelEvent::Text(text) => {
                partial.text.push_str(&text);
                // If a piece was already under way when the stop was accepted, its usage counts, but the piece is not
                // shown.
                if !self.scope.is_stopped() || self.has(Bug::AnswerShownAfterStop) {
                    self.cx.events.send(|| AgentEvent::TextDelta { text });
                }
            }
            ModelEvent::ToolCall(call) => partial.calls.push(call),
            ModelEvent::Usage(usage) => partial.usage = usage,
            _ => {}
        }
    }

    fn request_messages(&self) -> Vec<Arc<Message>> {
        let base = &self.journal.conversation().messages;
        base.iter().chain(&self.messages).cloned().collect()
    }
}
