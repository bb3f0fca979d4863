//! A turn that is under way.

use std::sync::Arc;

use crate::cause::Cause;
use crate::decision::{Decision, Verdict};
use crate::ids::{CallId, TurnNumber};
use crate::message::{Arguments, Effect, Message, ToolCall, ToolResult};
use crate::process::ProcessIdentity;
use crate::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use crate::time::Timestamp;
use crate::turn::budget::Reservation;
use crate::turn::conversation::Conversation;
use crate::turn::limits::{Refusal, TurnLimits};
use crate::turn::state::{IllegalEvent, TurnEvent, TurnState};
use crate::turn::step::{OpenStep, make_ids_unique};
use crate::usage::Usage;

/// With what a turn begins.
#[derive(Debug, Clone)]
pub struct TurnStart {
    /// Its number in the session.
    pub turn: TurnNumber,
    /// The user's words.
    pub input: Arc<str>,
    /// When.
    pub at: Timestamp,
    /// The process that runs it.
    pub owner: Option<ProcessIdentity>,
}

impl TurnStart {
    /// The record of the start: durable before the first call.
    pub fn record(&self) -> SessionRecord {
        SessionRecord::TurnStarted {
            turn: self.turn,
            at: self.at,
            input: Arc::clone(&self.input),
            owner: self.owner.clone(),
        }
    }
}

/// A turn under way over an immutable base.
///
/// Nothing that it does can be seen in the base. It ends by [`Draft::commit`] or [`Draft::stop`]; dropped, it changes
/// nothing, and the next recovery of its session writes its ending.
#[derive(Debug)]
#[must_use = "a draft that is dropped is a turn that never was"]
pub struct Draft {
    pub(super) base: Arc<Conversation>,
    pub(super) decision: Arc<Decision>,
    pub(super) state: TurnState,
    /// The user's message and the completed steps: a valid history at any time.
    pub(super) messages: Vec<Arc<Message>>,
    /// The step whose tools run.
    pub(super) step: Option<OpenStep>,
    /// What the answers in `messages` and `step` cost.
    pub(super) answered_usage: Usage,
    limits: TurnLimits,
    reservation: Option<Reservation>,
}

/// A step that may run: append the record, then call the model.
#[derive(Debug)]
pub struct StepStart {
    /// The id of the model call: `step_2`.
    pub id: CallId,
    /// The number of the step: 1, 2, 3 …
    pub step: u32,
    /// The start of the model call.
    pub record: SessionRecord,
}

/// A model call that has ended with an answer.
#[derive(Debug)]
pub struct ModelAnswer {
    /// The end of the model call.
    pub record: SessionRecord,
    /// What follows.
    pub next: Next,
}

/// What follows a model's answer.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// Nothing: it was the final answer, and the turn can commit.
    Commit,
    /// These calls, with ids that are unique in the turn; each needs its one result before the next step.
    Calls(Vec<ToolCall>),
}

/// Why a step or a call did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DraftError {
    /// A stop or a limit: the turn ends for it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A bug of the driver.
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
}

impl Draft {
    /// Begins a turn, if no stop has fallen for it yet and the limits let it.
    ///
    /// A stop precedes every limit. If a limit refuses the turn, the decision falls for that.
    ///
    /// # Errors
    /// The refusal; its [`Refusal::records`] are the whole story of the turn.
    pub fn begin(
        base: Arc<Conversation>,
        start: &TurnStart,
        limits: &TurnLimits,
        decision: Arc<Decision>,
    ) -> Result<Self, Refusal> {
        if let Err(refusal) = check_entry(&base, limits, &decision) {
            let ours = decision.stop(refusal.cause());
            return Err(match decision.stopped_by() {
                Some(first) if !ours => Refusal::Stopped(first.clone()),
                _ => refusal,
            });
        }
        Ok(Self {
            base,
            decision,
            state: TurnState::new(start.turn),
            messages: vec![Arc::new(Message::User {
                text: Arc::clone(&start.input),
            })],
            step: None,
            answered_usage: Usage::default(),
            limits: limits.clone(),
            reservation: None,
        })
    }

    /// Begins a step: checks the stop, then the limit of steps, then sets tokens aside for its model call.
    ///
    /// `model` names the model; `estimate_tokens` is what the call may cost, input and output together.
    ///
    /// # Errors
    /// The refusal, or a bug: a call of the step before is open or has no result. Nothing is changed then.
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
            return Err(Refusal::StepsMax { limit }.into());
        }
        let reservation = self.reserve(estimate_tokens)?;
        let step = self.state.steps() + 1;
        let id = CallId::from(format!("step_{step}"));
        let kind = StartedCallKind::Model {
            reserved_tokens: estimate_tokens,
        };
        let call = StartedCall {
            id: id.clone(),
            name: Arc::clone(model),
            kind,
        };
        let record = self.start_call(call, at)?;
        self.reservation = reservation;
        Ok(StepStart { id, step, record })
    }

    /// What the model is to be sent: the base and the draft, by pointer. It has exactly one result for each tool call
    /// at any time.
    pub fn request_messages(&self) -> Vec<Arc<Message>> {
        let mut all = Vec::with_capacity(self.base.messages.len() + self.messages.len());
        all.extend_from_slice(&self.base.messages);
        all.extend_from_slice(&self.messages);
        all
    }

    /// Notes the tokens that the running model call has used so far, so that a budget does not get them back if the
    /// draft is dropped.
    pub fn meter(&mut self, tokens_so_far: u64) {
        if let Some(reservation) = &mut self.reservation {
            reservation.meter(tokens_so_far);
        }
    }

    /// Takes a model's complete answer.
    ///
    /// # Errors
    /// If no model call is open, as after an [`Draft::abandon_model`].
    pub fn finish_model(
        &mut self,
        text: impl Into<Arc<str>>,
        mut tool_calls: Vec<ToolCall>,
        usage: Usage,
    ) -> Result<ModelAnswer, IllegalEvent> {
        let record = self.end_model(CallOutcome::Succeeded, usage)?;
        self.answered_usage += usage;
        let text = text.into();
        if tool_calls.is_empty() {
            let answer = Message::Assistant { text, tool_calls };
            self.messages.push(Arc::new(answer));
            return Ok(ModelAnswer {
                record,
                next: Next::Commit,
            });
        }
        make_ids_unique(&mut tool_calls, |id| self.state.has_started(id));
        self.step = Some(OpenStep::new(text, tool_calls.clone()));
        Ok(ModelAnswer {
            record,
            next: Next::Calls(tool_calls),
        })
    }

    /// Ends a model call that gave no complete answer: failed, stopped, or out of time. What it had streamed is
    /// dropped, a half-streamed tool call too; what it used is metered.
    ///
    /// # Errors
    /// If no model call is open.
    pub fn abandon_model(
        &mut self,
        outcome: CallOutcome,
        usage: Usage,
    ) -> Result<SessionRecord, IllegalEvent> {
        let outcome = match outcome {
            // An answer that was dropped has not succeeded.
            CallOutcome::Succeeded => CallOutcome::Stopped,
            other => other,
        };
        self.end_model(outcome, usage)
    }

    /// Begins a tool call that the model asked for: append the record, then run the tool.
    ///
    /// # Errors
    /// The refusal, or a bug: a call that awaits no result, or whose arguments are malformed
    /// ([`Draft::reject_call`] answers those).
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

    /// Takes the result of a call that ran.
    ///
    /// # Errors
    /// If the call is not open: never begun, or ended before.
    pub fn finish_call(
        &mut self,
        result: ToolResult,
        outcome: CallOutcome,
    ) -> Result<SessionRecord, IllegalEvent> {
        let at = self.asked(&result.call_id)?.0;
        let record = self.end_call(result.call_id.clone(), outcome, None)?;
        self.answer(at, result);
        Ok(record)
    }

    /// Answers a call that a policy, a person or a hook denied: it does not run. The records belong into one append.
    ///
    /// # Errors
    /// If the call awaits no result.
    pub fn deny_call(
        &mut self,
        id: &CallId,
        content: impl Into<Arc<str>>,
        at: Timestamp,
    ) -> Result<[SessionRecord; 2], IllegalEvent> {
        self.answer_unrun(id, content.into(), CallOutcome::Denied, at)
    }

    /// Answers a call that cannot run: no such tool, malformed arguments, a loop. The records belong into one append.
    ///
    /// # Errors
    /// If the call awaits no result.
    pub fn reject_call(
        &mut self,
        id: &CallId,
        content: impl Into<Arc<str>>,
        at: Timestamp,
    ) -> Result<[SessionRecord; 2], IllegalEvent> {
        self.answer_unrun(id, content.into(), CallOutcome::Failed, at)
    }

    /// Where the turn is: steps, open calls, metered usage.
    pub fn state(&self) -> &TurnState {
        &self.state
    }

    /// What it stands on.
    pub fn base(&self) -> &Arc<Conversation> {
        &self.base
    }

    /// The cause of the stop, if one has fallen.
    pub fn stopped_by(&self) -> Option<&Cause> {
        self.decision.stopped_by()
    }

    fn answer_unrun(
        &mut self,
        id: &CallId,
        content: Arc<str>,
        outcome: CallOutcome,
        at: Timestamp,
    ) -> Result<[SessionRecord; 2], IllegalEvent> {
        let (place, call) = self.asked(id)?;
        // It never runs, so nobody needs to know what repeating it would do.
        let call = started_tool(call, Effect::default());
        let started = self.start_call(call, at)?;
        let finished = self.end_call(id.clone(), outcome, None)?;
        let result = ToolResult {
            call_id: id.clone(),
            content,
            is_error: true,
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

    fn check_stop(&self) -> Result<(), Refusal> {
        match self.decision.stopped_by() {
            Some(cause) => Err(Refusal::Stopped(cause.clone())),
            None => Ok(()),
        }
    }

    fn reserve(&self, tokens: u64) -> Result<Option<Reservation>, Refusal> {
        Ok(match &self.limits.budget {
            Some(budget) => Some(budget.reserve(tokens)?),
            None => None,
        })
    }

    fn start_call(
        &mut self,
        call: StartedCall,
        at: Timestamp,
    ) -> Result<SessionRecord, IllegalEvent> {
        self.take(SessionRecord::CallStarted {
            turn: self.state.number(),
            call,
            at,
        })
    }

    pub(super) fn end_call(
        &mut self,
        id: CallId,
        outcome: CallOutcome,
        usage: Option<Usage>,
    ) -> Result<SessionRecord, IllegalEvent> {
        self.take(SessionRecord::CallFinished {
            turn: self.state.number(),
            id,
            outcome,
            usage,
        })
    }

    fn end_model(
        &mut self,
        outcome: CallOutcome,
        usage: Usage,
    ) -> Result<SessionRecord, IllegalEvent> {
        let open = self.state.open_calls().first();
        let id = match open {
            Some(StartedCall {
                id,
                kind: StartedCallKind::Model { .. },
                ..
            }) => id.clone(),
            _ => return Err(IllegalEvent::NoModelCall),
        };
        let record = self.end_call(id, outcome, Some(usage))?;
        if let Some(reservation) = self.reservation.take() {
            reservation.settle(usage);
        }
        Ok(record)
    }

    /// Every record passes here, and so through the transition function, before anybody sees it.
    fn take(&mut self, record: SessionRecord) -> Result<SessionRecord, IllegalEvent> {
        if let Some((_, event)) = TurnEvent::of(&record) {
            self.state.apply(event)?;
        }
        Ok(record)
    }
}

fn check_entry(
    base: &Conversation,
    limits: &TurnLimits,
    decision: &Decision,
) -> Result<(), Refusal> {
    if let Some(Verdict::Stop(cause)) = decision.verdict() {
        return Err(Refusal::Stopped(cause.clone()));
    }
    if let Some(limit) = limits.turns_max
        && base.turns >= limit
    {
        return Err(Refusal::TurnsMax { limit });
    }
    if let Some(budget) = &limits.budget {
        budget.check_left()?;
    }
    Ok(())
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
