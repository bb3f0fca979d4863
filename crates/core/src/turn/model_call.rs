//! The model call of a step, from the reservation of its tokens to its answer.

use std::sync::Arc;

use crate::finish_reason::FinishReason;
use crate::ids::CallId;
use crate::message::{Message, ToolCall};
use crate::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use crate::time::Timestamp;
use crate::turn::budget::Reservation;
use crate::turn::draft::{Draft, DraftError};
use crate::turn::limits::StartRefusal;
use crate::turn::request_names::bound_name;
use crate::turn::state::IllegalEvent;
use crate::turn::step::{OpenStep, cut_note, make_ids_unique};
use crate::usage::Usage;

/// Prefix of the ids of model calls: `step_1`, `step_2` …
const STEP_PREFIX: &str = "step_";

/// A step that may run: append the record, then call the model.
#[derive(Debug)]
pub struct StepStart {
    /// Id of the model call, such as `step_2`.
    pub id: CallId,
    /// Number of the step: 1, 2, 3 …
    pub step: u32,
    /// Record of the model call's start.
    pub record: SessionRecord,
}

/// A model call that ended with an answer.
#[derive(Debug)]
pub struct ModelAnswer {
    /// Record of the model call's end.
    pub record: SessionRecord,
    /// The action that must follow.
    pub next: NextAction,
}

/// Action after a model's answer.
#[derive(Debug, PartialEq)]
pub enum NextAction {
    /// Commit the turn: the answer was the final one.
    Commit,
    /// Run these calls. Their ids are unique in the turn. The next step can begin only after each call has its result.
    Calls(Vec<ToolCall>),
}

/// Usage and reservation of the running model call.
#[derive(Debug)]
pub(super) struct RunningModel {
    usage_so_far: Usage,
    reservation: Option<Reservation>,
}

impl Draft {
    /// Begins a step: checks for a stop, then checks the step limit, then reserves tokens for the model call.
    ///
    /// `model` is the model's name. `estimate_tokens` is the largest possible cost of the call: input and output tokens
    /// together.
    ///
    /// # Errors
    /// Returns the refusal. Also reports a bug of the caller: a call of the previous step is open or has no result. The
    /// draft is then unchanged.
    pub fn begin_step(
        &mut self,
        model: &Arc<str>,
        estimate_tokens: u64,
        at: Timestamp,
    ) -> Result<StepStart, DraftError> {
        self.check_stop()?;
        if let Some(call) = self.step.as_ref().and_then(|step| step.unanswered().next()) {
            return Err(IllegalEvent::CallOpen(call.id.clone()).into());
        }
        if let Some(limit) = self.limits.steps_max
            && self.state.steps() >= limit
        {
            return Err(StartRefusal::StepsMax { limit }.into());
        }
        let reservation = self.reserve(estimate_tokens)?;
        let step = self.state.steps() + 1;
        let id = CallId::from(format!("{STEP_PREFIX}{step}"));
        let kind = StartedCallKind::Model {
            reserved_tokens: estimate_tokens,
        };
        let call = StartedCall {
            id: id.clone(),
            name: Arc::clone(model),
            kind,
        };
        let record = self.start_call(call, at)?;
        self.messages_unseen = 0;
        self.running_model = Some(RunningModel {
            usage_so_far: Usage::default(),
            reservation,
        });
        Ok(StepStart { id, step, record })
    }

    /// Records the usage of the running model call so far. The metered total and the budget include this usage even if
    /// the call is dropped before its end.
    pub fn meter(&mut self, usage_so_far: Usage) {
        if let Some(running) = &mut self.running_model {
            running.usage_so_far = usage_so_far;
            if let Some(reservation) = &mut running.reservation {
                reservation.meter(usage_so_far.total_tokens());
            }
        }
    }

    /// Adds the model's answer to the turn. If the answer was cut off, the next request contains a note about this for
    /// the model.
    ///
    /// # Errors
    /// If no model call is open, as after [`Draft::abandon_model`].
    pub fn finish_model(
        &mut self,
        text: impl Into<Arc<str>>,
        mut tool_calls: Vec<ToolCall>,
        usage: Usage,
        finish: FinishReason,
    ) -> Result<ModelAnswer, IllegalEvent> {
        let cut = finish.is_cut().then_some(finish);
        let record = self.end_model(CallOutcome::Succeeded, usage, cut)?;
        self.answered_usage += usage;
        let text = text.into();
        if tool_calls.is_empty() {
            let answer = Message::Assistant { text, tool_calls };
            self.messages.push(Arc::new(answer));
            self.messages.extend(cut_note(finish));
            return Ok(ModelAnswer {
                record,
                next: NextAction::Commit,
            });
        }
        for call in &mut tool_calls {
            call.arguments.bound();
            bound_name(&mut call.name);
        }
        // An invalid or duplicate id is replaced by a numbered id. The first number is the number of messages so far,
        // because earlier replacement ids usually have lower numbers. The model may itself have chosen such an id, so
        // each number is checked.
        let from = self.base.messages.len() + self.messages.len();
        make_ids_unique(&mut tool_calls, from, |id| self.is_taken(id));
        self.step = Some(OpenStep::new(text, tool_calls.clone(), finish));
        Ok(ModelAnswer {
            record,
            next: NextAction::Calls(tool_calls),
        })
    }

    /// Ends a model call that has no complete answer because the call failed, was stopped, or timed out. Drops the
    /// partial output, including a partial tool call. The usage still counts.
    ///
    /// # Errors
    /// If no model call is open.
    pub fn abandon_model(
        &mut self,
        outcome: CallOutcome,
        usage: Usage,
    ) -> Result<SessionRecord, IllegalEvent> {
        let outcome = match outcome {
            // A call without an answer cannot have succeeded.
            CallOutcome::Succeeded => CallOutcome::Stopped,
            other => other,
        };
        self.end_model(outcome, usage, None)
    }

    /// True if a new tool call must not have this id. The ids of this turn's model calls are reserved. No id may appear
    /// twice in the history, because some providers refuse such a history.
    fn is_taken(&self, id: &CallId) -> bool {
        let in_base = |message: &Arc<Message>| match &**message {
            Message::Assistant { tool_calls, .. } => tool_calls.iter().any(|call| call.id == *id),
            _ => false,
        };
        id.as_str().starts_with(STEP_PREFIX)
            || self.state.has_started(id)
            || self.base.messages.iter().any(in_base)
    }

    /// Ends the open model call because of a stop. The recorded usage is the usage metered so far, marked as an
    /// estimate.
    pub(super) fn drop_model(
        &mut self,
        outcome: CallOutcome,
    ) -> Result<SessionRecord, IllegalEvent> {
        let so_far = self
            .running_model
            .as_ref()
            .map(|running| running.usage_so_far);
        let usage = Usage {
            estimated: true,
            ..so_far.unwrap_or_default()
        };
        self.end_model(outcome, usage, None)
    }

    fn end_model(
        &mut self,
        outcome: CallOutcome,
        usage: Usage,
        finish: Option<FinishReason>,
    ) -> Result<SessionRecord, IllegalEvent> {
        let id = self
            .state
            .open_model_call()
            .ok_or(IllegalEvent::NoModelCall)?
            .clone();
        let record = self.apply_record(SessionRecord::CallFinished {
            turn: self.state.number(),
            id,
            outcome,
            usage: Some(usage),
            finish,
            exit_code: None,
            result: None,
        })?;
        if let Some(reservation) = self
            .running_model
            .take()
            .and_then(|running| running.reservation)
        {
            reservation.settle(usage);
        }
        Ok(record)
    }
}
