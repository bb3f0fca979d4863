//! Converts a session's events to the protocol's events, without I/O and without a runtime. Each client of a session
//! has one translator.
//!
//! Order of a tool call in the SDKs: `assistant.message` → `tool.execution_start` → `permission.requested` and
//! `permission.completed` → `external_tool.requested` → `external_tool.completed` → `tool.execution_complete` →
//! `assistant.turn_end`. Order of an abort: `abort` → `external_tool.completed` → `assistant.turn_end` →
//! `assistant.idle`.
//!
//! Invariants:
//! 1. Every `tool.execution_start` has one `tool.execution_complete` before the turn of its message ends.
//! 2. Every `external_tool.requested` has one `external_tool.completed`.
//! 3. `session.idle` is sent only if no turn runs or waits, and no attached background work runs.

mod calls;
mod context_estimate;
mod elicitation;
mod history;
mod permission;
mod persisted;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::record::{CallOutcome, SessionRecord, StartedCallKind};
use allstop_core::{Cause, MessageId, SessionId, StopReason, Timestamp, TraceContext, TurnNumber};
use allstop_model::ReasoningEffort;
use allstop_session::{SessionEvent, SessionEventKind};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::event::{CopilotEvent, event_id};
use crate::hosted::{ClientFacts, SessionNote};
use calls::ShownCalls;
use context_estimate::ContextEstimate;
pub(crate) use history::{HistorySource, history};
pub(crate) use permission::{UNANSWERED, permission_request};
pub(crate) use persisted::PersistedEvent;
use persisted::{Compaction, abort_reason, answer_message_id, failure_of};

/// Choices of the client that created or resumed the session.
#[derive(Debug, Clone)]
pub(crate) struct TranslatorOptions {
    pub session: SessionId,
    /// True if the client receives each piece of an answer when the model sends the piece.
    pub streaming: bool,
    pub version: Arc<str>,
    pub facts: Arc<ClientFacts>,
    /// Context window of the model in tokens.
    pub context_window: u64,
    /// Name of the model; `None` if neither the client nor the configuration has chosen a model.
    pub model: Option<Arc<str>>,
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Text that distinguishes the ids of this translator's ephemeral events from the ids of other translators' events.
    pub nonce: Arc<str>,
}

/// A call of a client's tool, in the form that its handler receives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExternalCall {
    pub request_id: Arc<str>,
    pub call_id: Arc<str>,
    pub tool: Arc<str>,
    pub arguments: Arc<Value>,
    pub trace: Option<TraceContext>,
}

impl ExternalCall {
    /// True if a sub-agent made the call. The id is then the path of all calls that lead to this call.
    fn is_of_sub_agent(&self) -> bool {
        self.call_id.contains('/')
    }
}

/// Event for the clients that is not among the events of the session itself.
#[derive(Debug, Clone)]
pub(crate) enum HostEvent {
    /// A client's tool is called.
    ExternalRequested(ExternalCall),
    /// A client's tool is called, and the call began before this client attached.
    ExternalPending(ExternalCall),
    /// The call was answered or cancelled. The handler of a cancelled call must end.
    ExternalCompleted {
        request_id: Arc<str>,
        is_cancelled: bool,
    },
    /// The client requested a part that this server does not offer.
    NotOffered { message: Arc<str> },
    /// An event of the history that a client has caused, such as a resume.
    Noted(SessionNote),
    /// An event of the protocol that the history does not contain.
    Ephemeral { kind: &'static str, data: Value },
    /// A stop of this turn was requested. The turn may still complete.
    AbortRequested { turn: TurnNumber, reason: Arc<str> },
}

/// Part of the running turn that a client receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnView {
    /// No turn runs.
    Ended,
    Whole,
    /// Only the rest of the turn, because the client attached in the middle of the turn.
    Rest,
}

/// Translator of one session for one client.
#[derive(Debug)]
pub(crate) struct EventTranslator {
    options: TranslatorOptions,
    now: Timestamp,
    out: Vec<CopilotEvent>,
    /// The last persisted event.
    last: Option<Uuid>,
    ephemeral: u64,
    turn: TurnNumber,
    message: Option<MessageId>,
    turn_view: TurnView,
    /// The last step of the turn.
    last_step: u32,
    /// Step whose `turn` in the protocol is open. The protocol calls each step (one model call) a turn.
    open_step: Option<u32>,
    calls: ShownCalls,
    context: ContextEstimate,
    /// The last requested stop of a turn.
    abort_requested: Option<(TurnNumber, Arc<str>)>,
    is_aborted: bool,
    /// True from the start of an automatic compaction to its end.
    is_compacting: bool,
    /// True from `session.idle` to the next turn.
    is_idle_sent: bool,
    /// Reason for the end of the last turn.
    ended: Option<StopReason>,
}

impl EventTranslator {
    pub(crate) fn new(options: TranslatorOptions) -> Self {
        Self {
            options,
            now: Timestamp::from_unix_ms(0),
            out: Vec::new(),
            last: None,
            ephemeral: 0,
            turn: TurnNumber(0),
            message: None,
            turn_view: TurnView::Ended,
            last_step: 0,
            open_step: None,
            calls: ShownCalls::default(),
            context: ContextEstimate::default(),
            abort_requested: None,
            is_aborted: false,
            is_compacting: false,
            is_idle_sent: false,
            ended: None,
        }
    }

    /// Returns the protocol's events for one event of the session, at this time.
    pub(crate) fn session_event(
        &mut self,
        event: &SessionEvent,
        now: Timestamp,
    ) -> Vec<CopilotEvent> {
        self.now = now;
        let is_of_the_past = event.turn.is_some_and(|turn| turn < self.turn);
        if let (SessionEventKind::Live(_), Some(turn)) = (&event.kind, event.turn)
            && turn > self.turn
        {
            self.came_in_the_middle(turn, event.message.as_ref());
        }
        match &event.kind {
            // The client was too slow: it already has records of later turns, so live events of earlier turns are
            // omitted.
            SessionEventKind::Live(_)
            | SessionEventKind::AssistantIdle { .. }
            | SessionEventKind::SessionIdle { .. }
                if is_of_the_past => {}
            SessionEventKind::Recorded { record, .. } => self.record(record),
            SessionEventKind::Live(event) => self.live(event),
            SessionEventKind::PermissionAsked(question) => self.permission_asked(question),
            SessionEventKind::PermissionAnswered { id, answer } => {
                self.permission_answered(id, answer.as_ref());
            }
            SessionEventKind::ServerAsked(question) => self.server_asked(question),
            SessionEventKind::ServerQuestionClosed { id } => self.server_question_closed(id),
            // The late answer was given by a client, and its response already reports that the answer was late.
            SessionEventKind::LateAnswer { .. } => {}
            SessionEventKind::BackgroundChanged { .. } => {
                self.ephemeral("session.background_tasks_changed", json!({}));
            }
            SessionEventKind::AssistantIdle { .. } => {
                let data = self.idle_data();
                self.ephemeral("assistant.idle", data);
            }
            // The session repeats this event after each later change. If the client received a second event, it could
            // take that event for the end of its next message.
            SessionEventKind::SessionIdle { .. } if self.is_idle_sent => {}
            SessionEventKind::SessionIdle { .. } => {
                self.is_idle_sent = true;
                let data = self.idle_data();
                self.ephemeral("session.idle", data);
            }
            SessionEventKind::Missed { count } => {
                let message = format!("this client was too slow: {count} events were left out");
                let data = json!({ "warningType": "events_missed", "message": message });
                self.ephemeral("session.warning", data);
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Returns the protocol's events for a host event, at this time.
    pub(crate) fn host_event(&mut self, event: &HostEvent, now: Timestamp) -> Vec<CopilotEvent> {
        self.now = now;
        match event {
            HostEvent::ExternalRequested(call) => self.external_requested(call),
            HostEvent::ExternalPending(call) => self.external_pending(call),
            HostEvent::NotOffered { message } => {
                let data = json!({ "warningType": "not_offered", "message": message });
                self.ephemeral("session.warning", data);
            }
            HostEvent::Noted(note) => self.persisted(PersistedEvent::note(note)),
            HostEvent::Ephemeral { kind, data } => self.ephemeral(kind, data.clone()),
            HostEvent::ExternalCompleted {
                request_id,
                is_cancelled,
            } => self.external_completed(request_id, *is_cancelled),
            HostEvent::AbortRequested { turn, reason } => {
                self.abort_requested = Some((*turn, Arc::clone(reason)));
            }
        }
        std::mem::take(&mut self.out)
    }

    fn record(&mut self, record: &SessionRecord) {
        if let SessionRecord::CallFinished { id, outcome, .. } = record {
            self.call_recorded(id, *outcome);
        }
        if let Some(compaction) = Compaction::of(record) {
            let [start, complete] = PersistedEvent::compaction(&compaction);
            // The start of an automatic compaction was sent when the compaction began.
            if !std::mem::take(&mut self.is_compacting) {
                self.persisted(start);
            }
            self.persisted(complete);
        }
        match record {
            SessionRecord::SessionOpened { at, folder, .. } => {
                let TranslatorOptions {
                    session,
                    version,
                    model,
                    reasoning_effort,
                    ..
                } = &self.options;
                let model = (model.as_ref(), *reasoning_effort);
                let opened = (*at, &**folder);
                let event = PersistedEvent::session_start(session, version, model, opened);
                self.persisted(event);
            }
            SessionRecord::TurnStarted {
                turn,
                input,
                message,
                origin,
                ..
            } => {
                // Calls of the preceding turn are open only if the client was too slow to receive the end of that turn.
                self.complete_calls(
                    CallOutcome::Unknown,
                    "the client has missed the end of the call",
                );
                self.end_step();
                (self.turn, self.message) = (*turn, message.clone());
                self.turn_began(TurnView::Whole);
                self.context.add(input);
                // The message has left the queue.
                self.ephemeral("pending_messages.modified", json!({}));
                let facts = &self.options.facts;
                let event = PersistedEvent::turn_start(*turn, input, message.as_ref(), *origin);
                let event = event.with_facts(facts, message.as_ref());
                self.persisted(event);
            }
            SessionRecord::MessageSteered { message, text, .. } => {
                self.context.add(text);
                let event = PersistedEvent::steered(message, text);
                let event = event.with_facts(&self.options.facts, Some(message));
                self.persisted(event);
            }
            // The log contains the start of the call even if a stop follows immediately.
            SessionRecord::CallStarted { call, .. }
                if self.turn_view == TurnView::Whole
                    && matches!(call.kind, StartedCallKind::Model { .. }) =>
            {
                self.start_step(self.last_step + 1, &call.name);
            }
            SessionRecord::TurnStopped {
                turn,
                reason,
                cause,
                receipt,
                kept,
                ..
            } => {
                if failure_of(*reason).is_none() {
                    self.abort(abort_reason(cause));
                }
                if let Some(receipt) = receipt {
                    self.persisted(PersistedEvent::receipt(*turn, receipt));
                }
                self.complete_kept_calls(kept);
            }
            SessionRecord::CallFinished {
                usage: Some(usage), ..
            } => {
                let model = self
                    .options
                    .model
                    .clone()
                    .unwrap_or_else(|| "unknown".into());
                let data = json!({
                    "model": model,
                    "inputTokens": usage.input_tokens,
                    "outputTokens": usage.output_tokens,
                });
                self.ephemeral("assistant.usage", data);
                let info = self.context.info(*usage, self.options.context_window);
                self.ephemeral("session.usage_info", info);
            }
            _ => {}
        }
    }

    fn came_in_the_middle(&mut self, turn: TurnNumber, message: Option<&MessageId>) {
        (self.turn, self.message) = (turn, message.cloned());
        self.turn_began(TurnView::Rest);
    }

    fn turn_began(&mut self, view: TurnView) {
        self.turn_view = view;
        (self.last_step, self.is_aborted) = (0, false);
        (self.is_idle_sent, self.ended) = (false, None);
    }

    fn live(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::StepStarted { step, model, .. } if self.turn_view == TurnView::Rest => {
                self.start_step(*step, model);
            }
            AgentEvent::TextDelta { text } if self.options.streaming => {
                let data = json!({ "messageId": self.answer_id(), "deltaContent": text });
                self.ephemeral("assistant.message_delta", data);
            }
            AgentEvent::ReasoningDelta { text } if self.options.streaming => {
                let data = json!({ "reasoningId": self.answer_id(), "deltaContent": text });
                self.ephemeral("assistant.reasoning_delta", data);
            }
            AgentEvent::StepAnswered {
                step, text, calls, ..
            } => {
                self.context.add(text);
                let (session, message) = (&self.options.session, self.message.as_ref());
                let place = (self.turn, *step);
                let event = PersistedEvent::answer(session, place, (text, calls), message);
                self.persisted(event);
            }
            AgentEvent::ToolRequested {
                call_id,
                name,
                arguments,
            } => self.call_requested(call_id, name, arguments),
            AgentEvent::ToolStarted { call_id, .. } => self.call_started(call_id),
            AgentEvent::ToolOutput { call_id, text, .. } => {
                let data = json!({ "toolCallId": call_id, "partialOutput": text });
                self.ephemeral("tool.execution_partial_result", data);
            }
            AgentEvent::ToolProgress { call_id, progress } => {
                let data =
                    json!({ "toolCallId": call_id, "partialOutput": format!("{progress}\n") });
                self.ephemeral("tool.execution_partial_result", data);
            }
            AgentEvent::ToolFinished {
                call_id,
                outcome,
                content,
                ..
            } => {
                self.context.add(content);
                self.call_finished(call_id, *outcome, content);
            }
            AgentEvent::SummaryStarted { tokens, .. } => {
                self.is_compacting = true;
                let data = json!({ "conversationTokens": tokens, "trigger": "threshold" });
                self.ephemeral("session.compaction_start", data);
            }
            AgentEvent::SummaryFailed { error } => self.compaction_failed(error),
            AgentEvent::RetryScheduled { error, attempt, .. } => {
                let message = format!("model call {attempt} failed and is repeated: {error}");
                let data = json!({ "infoType": "retry", "message": message });
                self.ephemeral("session.info", data);
            }
            // A failure has a separate event, and not an event of an abort.
            AgentEvent::StopHeard { cause } if failure_of(cause.stop_reason()).is_none() => {
                let reason = abort_reason(cause);
                self.abort(reason);
            }
            AgentEvent::TurnEnded {
                stop_reason,
                cause,
                lost,
                ..
            } => {
                if let Some(lost) = lost {
                    let data = json!({ "infoType": "effects", "message": lost.to_string() });
                    self.ephemeral("session.info", data);
                }
                self.turn_ended(*stop_reason, cause.as_ref());
            }
            _ => {}
        }
    }

    fn compaction_failed(&mut self, error: &str) {
        if std::mem::take(&mut self.is_compacting) {
            let data = json!({ "success": false, "error": error });
            self.ephemeral("session.compaction_complete", data);
        }
    }

    /// Sends the event of the abort that was requested for this turn, because the turn can no longer complete.
    fn abort_as_requested(&mut self) {
        if self.turn_view != TurnView::Ended
            && let Some((turn, reason)) = self.abort_requested.clone()
            && turn == self.turn
        {
            self.abort(&reason);
        }
    }

    fn abort(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_aborted, true) {
            self.persisted(PersistedEvent::abort(self.turn, reason));
        }
    }

    fn turn_ended(&mut self, reason: StopReason, cause: Option<&Cause>) {
        let cause_text = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        let why = format!("the call was stopped with its turn{cause_text}");
        self.complete_calls(CallOutcome::Stopped, &why);
        self.end_step();
        (self.turn_view, self.ended) = (TurnView::Ended, Some(reason));
        if reason != StopReason::Completed {
            self.compaction_failed("the turn that used the summary did not complete");
        }
        let message = self.message.as_ref();
        if let Some(event) = PersistedEvent::failure(self.turn, reason, cause, message) {
            self.persisted(event);
        }
    }

    fn start_step(&mut self, step: u32, model: &str) {
        self.end_step();
        (self.last_step, self.open_step) = (step, Some(step));
        self.persisted(PersistedEvent::step_start(self.turn, step, model));
    }

    fn end_step(&mut self) {
        if let Some(step) = self.open_step.take() {
            self.persisted(PersistedEvent::step_end(self.turn, step));
        }
    }

    /// Returns the last turn whose events were sent, and true if the turn was completed.
    pub(crate) fn last_turn(&self) -> (TurnNumber, bool) {
        (self.turn, self.ended == Some(StopReason::Completed))
    }

    fn idle_data(&self) -> Value {
        match self.ended {
            Some(StopReason::Cancelled | StopReason::Shutdown) => json!({ "aborted": true }),
            _ => json!({}),
        }
    }

    fn answer_id(&self) -> Uuid {
        answer_message_id(&self.options.session, self.turn, self.last_step)
    }

    fn persisted(&mut self, event: PersistedEvent) {
        let event = event.at(&self.options.session, self.now, self.last);
        self.last = Some(event.id);
        self.out.push(event);
    }

    fn ephemeral(&mut self, kind: &'static str, data: Value) {
        self.ephemeral += 1;
        let place = format!("ephemeral/{}/{}", self.options.nonce, self.ephemeral);
        self.out.push(CopilotEvent {
            id: event_id(&self.options.session, &place),
            timestamp: self.now,
            parent_id: self.last,
            kind,
            data,
            ephemeral: true,
            agent_id: None,
        });
    }
}
