//! Tool calls of a step. Each call begins and ends once, or gets a result without running.

use std::sync::Arc;

use crate::ids::CallId;
use crate::image::Images;
use crate::message::{Arguments, Effect, ToolCall, ToolResult};
use crate::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use crate::time::Timestamp;
use crate::turn::draft::{Draft, DraftError};
use crate::turn::effects::result_excerpt;
use crate::turn::state::IllegalEvent;
use crate::usage::Usage;

impl Draft {
    /// Begins a tool call of the model. Append the record, then run the tool.
    ///
    /// # Errors
    /// Returns the refusal. Also reports a bug of the caller: the step does not wait for this call's result, or the
    /// call has malformed arguments. For malformed arguments, use [`Draft::reject_call`].
    pub fn begin_call(
        &mut self,
        id: &CallId,
        effect: Effect,
        at: Timestamp,
    ) -> Result<SessionRecord, DraftError> {
        self.check_stop()?;
        let call = self.asked(id)?.1;
        if matches!(call.arguments, Arguments::Malformed(_)) {
            return Err(IllegalEvent::MalformedArguments(id.clone()).into());
        }
        let call = started_tool(call, effect);
        let reservation = self.reserve(0)?;
        let record = self.start_call(call, at)?;
        if let Some(reservation) = reservation {
            reservation.settle(Usage::default());
        }
        Ok(record)
    }

    /// Stores the result of a tool call that ran.
    ///
    /// # Errors
    /// If the call is not open, because it never began or has ended.
    pub fn finish_call(
        &mut self,
        result: ToolResult,
        outcome: CallOutcome,
    ) -> Result<SessionRecord, IllegalEvent> {
        let at = self.asked(&result.call_id)?.0;
        let excerpt = result_excerpt(&result.content);
        let record = self.end_tool_call(result.call_id.clone(), outcome, Some(excerpt))?;
        if let SessionRecord::CallFinished {
            usage: Some(usage), ..
        } = &record
        {
            self.answered_usage += *usage;
        }
        self.answer(at, result);
        Ok(record)
    }

    /// Answers a call that a policy, a person or a hook denied. The call does not run. Append both records together.
    ///
    /// # Errors
    /// If the step does not wait for this call's result.
    pub fn deny_call(
        &mut self,
        id: &CallId,
        content: impl Into<Arc<str>>,
        at: Timestamp,
    ) -> Result<[SessionRecord; 2], IllegalEvent> {
        self.answer_unrun(id, content.into(), CallOutcome::Denied, at)
    }

    /// Answers a call that cannot run: the tool is unknown, the arguments are malformed, or the call is part of a loop.
    /// Append both records together.
    ///
    /// # Errors
    /// If the step does not wait for this call's result.
    pub fn reject_call(
        &mut self,
        id: &CallId,
        content: impl Into<Arc<str>>,
        at: Timestamp,
    ) -> Result<[SessionRecord; 2], IllegalEvent> {
        self.answer_unrun(id, content.into(), CallOutcome::Failed, at)
    }

    fn answer_unrun(
        &mut self,
        id: &CallId,
        content: Arc<str>,
        outcome: CallOutcome,
        at: Timestamp,
    ) -> Result<[SessionRecord; 2], IllegalEvent> {
        let (place, call) = self.asked(id)?;
        // The call never runs, so it changes nothing.
        let call = started_tool(call, Effect::ReadOnly);
        let started = self.start_call(call, at)?;
        let finished = self.end_tool_call(id.clone(), outcome, None)?;
        let result = ToolResult {
            call_id: id.clone(),
            content,
            is_error: true,
            images: Images::default(),
        };
        self.answer(place, result);
        Ok([started, finished])
    }

    fn asked(&self, id: &CallId) -> Result<(usize, &ToolCall), IllegalEvent> {
        match &self.step {
            Some(step) => step.awaiting(id),
            None => Err(IllegalEvent::NotAsked(id.clone())),
        }
    }

    fn answer(&mut self, at: usize, result: ToolResult) {
        let Some(step) = &mut self.step else { return };
        step.answer(at, result);
        if step.is_complete()
            && let Some(step) = self.step.take()
        {
            step.into_messages(&mut self.messages, |_| unreachable!("the step is complete"));
        }
    }
}

fn started_tool(call: &ToolCall, effect: Effect) -> StartedCall {
    let kind = StartedCallKind::Tool {
        arguments: call.arguments.clone(),
        effect,
    };
    StartedCall {
        id: call.id.clone(),
        name: Arc::clone(&call.name),
        kind,
    }
}
