//! Events of the turns in a log. The events have the ids that they had while the turns ran.
//!
//! A rolled-back turn has no stored messages, so only the outcomes of its calls are reported.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_core::record::{CallOutcome, SessionRecord, StartedCallKind, TurnOrigin};
use allstop_core::{
    CallId, Cause, Message, MessageId, Receipt, SessionId, StopReason, Timestamp, TurnNumber,
};
use allstop_model::ReasoningEffort;
use serde_json::Value;

use super::calls;
use super::persisted::{Compaction, PersistedEvent, abort_reason, failure_of};
use crate::event::CopilotEvent;
use crate::hosted::{ClientFacts, SessionNote};

/// Returns the events for the records of a session, in the order of the records.
pub(crate) fn history(source: HistorySource<'_>, records: &[SessionRecord]) -> Vec<CopilotEvent> {
    let mut history = History {
        source,
        session: source.session,
        notes: source.facts.notes().into(),
        turns: Vec::new(),
        events: Vec::new(),
        turn: TurnNumber(0),
        message: None,
        origin: TurnOrigin::User,
        at: Timestamp::from_unix_ms(0),
        step: None,
        records: Vec::new(),
    };
    for record in records {
        history.record(record);
    }
    history.notes_before(None);
    history.events
}

/// A session whose history is requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HistorySource<'a> {
    pub session: &'a SessionId,
    pub version: &'a str,
    pub model: Option<&'a Arc<str>>,
    pub reasoning_effort: Option<ReasoningEffort>,
    pub facts: &'a ClientFacts,
}

struct History<'a> {
    source: HistorySource<'a>,
    session: &'a SessionId,
    /// Notes without an event so far.
    notes: VecDeque<SessionNote>,
    /// Each turn, with the index of its first event.
    turns: Vec<(TurnNumber, usize)>,
    events: Vec<CopilotEvent>,
    turn: TurnNumber,
    /// The user's message that began the turn.
    message: Option<MessageId>,
    origin: TurnOrigin,
    /// Time of the last record that contains a time.
    at: Timestamp,
    /// Step of the agent whose `turn` in the protocol is open. The protocol calls each step (one model call) a turn.
    step: Option<u32>,
    /// Records of the turn that are needed at the end of the turn: calls, and messages that were added to the turn.
    records: Vec<&'a SessionRecord>,
}

impl<'a> History<'a> {
    fn record(&mut self, record: &'a SessionRecord) {
        if let Some(compaction) = Compaction::of(record) {
            self.at = compaction.at;
            for event in PersistedEvent::compaction(&compaction) {
                self.push(event);
            }
        }
        match record {
            SessionRecord::SessionOpened { at, folder, .. } => {
                self.at = *at;
                let opened = (*at, &**folder);
                self.push(PersistedEvent::session_start(
                    self.session,
                    self.source.version,
                    (self.source.model, self.source.reasoning_effort),
                    opened,
                ));
            }
            SessionRecord::TurnStarted {
                turn,
                at,
                input,
                message,
                origin,
                ..
            } => self.turn_started(*turn, *at, input, message.as_ref(), *origin),
            SessionRecord::MessageSteered { .. }
            | SessionRecord::CallStarted { .. }
            | SessionRecord::CallFinished { .. } => self.records.push(record),
            SessionRecord::TurnCommitted { at, messages, .. } => {
                self.at = *at;
                let _none_is_withheld = self.messages(messages, false);
                self.end_step();
            }
            SessionRecord::TurnStopped {
                at,
                reason,
                cause,
                kept,
                receipt,
                ..
            } => self.stopped(*at, *reason, cause, kept, receipt.as_ref()),
            SessionRecord::TurnUndone { turn, .. } => self.undo(*turn),
            _ => {}
        }
    }

    /// Removes the events of a turn.
    fn undo(&mut self, undone: TurnNumber) {
        let Some(at) = self.turns.iter().position(|(turn, _)| *turn == undone) else {
            return;
        };
        let (_, start) = self.turns.remove(at);
        let end = self
            .turns
            .get(at)
            .map_or(self.events.len(), |(_, next)| *next);
        self.events.drain(start..end);
        for (_, later) in self.turns.iter_mut().skip(at) {
            *later -= end - start;
        }
    }

    fn turn_started(
        &mut self,
        turn: TurnNumber,
        at: Timestamp,
        input: &str,
        message: Option<&MessageId>,
        origin: TurnOrigin,
    ) {
        (self.turn, self.message, self.origin) = (turn, message.cloned(), origin);
        (self.at, self.step) = (at, None);
        self.records.clear();
        self.notes_before(Some(turn));
        self.turns.push((turn, self.events.len()));
        let event = PersistedEvent::turn_start(turn, input, message, origin);
        self.push(event.with_facts(self.source.facts, message));
    }

    /// Sends the events of the notes before a turn; of all notes if there is no further turn.
    fn notes_before(&mut self, turn: Option<TurnNumber>) {
        let is_before = |note: &SessionNote| turn.is_none_or(|turn| note.after < turn);
        while let Some(note) = self.notes.pop_front_if(|note| is_before(note)) {
            self.push(PersistedEvent::note(&note));
        }
    }

    fn stopped(
        &mut self,
        at: Timestamp,
        reason: StopReason,
        cause: &Cause,
        kept: &[Arc<Message>],
        receipt: Option<&Arc<Receipt>>,
    ) {
        let mut kept_ends = Vec::new();
        let open = if kept.is_empty() {
            self.calls()
        } else {
            self.at = at;
            kept_ends = self.messages(kept, true);
            Vec::new()
        };
        self.at = at;
        let turn = self.turn;
        if failure_of(reason).is_none() {
            self.push(PersistedEvent::abort(turn, abort_reason(cause)));
        }
        if let Some(receipt) = receipt {
            self.push(PersistedEvent::receipt(turn, receipt));
        }
        for end in kept_ends {
            self.push(end);
        }
        for id in open {
            self.completed(id, CallOutcome::Stopped);
        }
        self.end_step();
        let message = self.message.clone();
        let failure = PersistedEvent::failure(turn, reason, Some(cause), message.as_ref());
        if let Some(event) = failure {
            self.push(event);
        }
    }

    /// Sends the events for a turn without stored messages: its steps, calls and added messages. Returns the calls that
    /// the stop has ended.
    fn calls(&mut self) -> Vec<&'a CallId> {
        let (mut step, mut open): (_, Vec<&CallId>) = (0, Vec::new());
        for record in std::mem::take(&mut self.records) {
            match record {
                SessionRecord::MessageSteered { message, text, .. } => {
                    let event = PersistedEvent::steered(message, text);
                    self.push(event.with_facts(self.source.facts, Some(message)));
                }
                SessionRecord::CallStarted { call, at, .. } => {
                    self.at = *at;
                    match &call.kind {
                        StartedCallKind::Model { .. } => {
                            step += 1;
                            self.start_step(step, &call.name);
                        }
                        // Clients get no events of a sub-agent's calls.
                        StartedCallKind::Tool { .. }
                            if open.iter().any(|outer| call.id.is_within(outer)) => {}
                        StartedCallKind::Tool { arguments, .. } => {
                            let arguments = calls::arguments_of(arguments);
                            self.called(&call.id, &call.name, &arguments);
                            open.push(&call.id);
                        }
                    }
                }
                // The event of a stop precedes the completions of the calls that the stop has ended.
                SessionRecord::CallFinished { id, outcome, .. }
                    if !matches!(outcome, CallOutcome::Stopped | CallOutcome::Unknown) =>
                {
                    if let Some(at) = open.iter().position(|open| *open == id) {
                        open.remove(at);
                        self.completed(id, *outcome);
                    }
                }
                _ => {}
            }
        }
        open
    }

    /// Sends the events of stored messages. If `withholds_stopped` is true, returns the ends of the calls that a stop has
    /// ended: the event of the stop precedes them.
    fn messages(
        &mut self,
        messages: &[Arc<Message>],
        withholds_stopped: bool,
    ) -> Vec<PersistedEvent> {
        let mut withheld = Vec::new();
        let records = std::mem::take(&mut self.records);
        let mut steered = records.iter().filter_map(|record| match record {
            SessionRecord::MessageSteered { message, text, .. } => Some((message, text)),
            _ => None,
        });
        let mut models = records.iter().filter_map(|record| match record {
            SessionRecord::CallStarted { call, .. } => match &call.kind {
                StartedCallKind::Model { .. } => Some(&*call.name),
                StartedCallKind::Tool { .. } => None,
            },
            _ => None,
        });
        let outcome_of = |call: &CallId| {
            records.iter().rev().find_map(|record| match record {
                SessionRecord::CallFinished { id, outcome, .. } if id == call => Some(*outcome),
                _ => None,
            })
        };
        let mut step = 0;
        // The message that began the turn was already sent, before the turn.
        let mut is_first = self.origin == TurnOrigin::User;
        for message in messages {
            match &**message {
                Message::User { .. } if std::mem::take(&mut is_first) => {}
                Message::User { .. } => {
                    if let Some((message, text)) = steered.next() {
                        let event = PersistedEvent::steered(message, text);
                        self.push(event.with_facts(self.source.facts, Some(message)));
                    }
                }
                Message::Assistant { text, tool_calls } => {
                    step += 1;
                    self.start_step(step, models.next().unwrap_or_default());
                    let place = (self.turn, step);
                    let answered = (&**text, &**tool_calls);
                    let message = self.message.as_ref();
                    let event = PersistedEvent::answer(self.session, place, answered, message);
                    self.push(event);
                    for call in tool_calls {
                        let arguments = calls::arguments_of(&call.arguments);
                        self.called(&call.id, &call.name, &arguments);
                    }
                }
                Message::Tool(result) => {
                    // If the end of a call has no record, the call ended together with its turn.
                    let outcome = outcome_of(&result.call_id).unwrap_or(CallOutcome::Stopped);
                    let (id, content) = (&result.call_id, &result.content);
                    let facts = self.source.facts;
                    let end = PersistedEvent::call_end(self.turn, id, outcome, content, facts);
                    let is_stopped = matches!(outcome, CallOutcome::Stopped | CallOutcome::Unknown);
                    if withholds_stopped && is_stopped {
                        withheld.push(end);
                    } else {
                        self.push(end);
                    }
                }
                _ => {}
            }
        }
        withheld
    }

    fn called(&mut self, id: &CallId, tool: &str, arguments: &Value) {
        self.push(PersistedEvent::call_start(self.turn, id, tool, arguments));
    }

    fn completed(&mut self, id: &CallId, outcome: CallOutcome) {
        let content = "the result was dropped with its turn";
        let facts = self.source.facts;
        self.push(PersistedEvent::call_end(
            self.turn, id, outcome, content, facts,
        ));
    }

    fn start_step(&mut self, step: u32, model: &str) {
        self.end_step();
        self.step = Some(step);
        self.push(PersistedEvent::step_start(self.turn, step, model));
    }

    fn end_step(&mut self) {
        if let Some(step) = self.step.take() {
            self.push(PersistedEvent::step_end(self.turn, step));
        }
    }

    fn push(&mut self, event: PersistedEvent) {
        let parent = self.events.last().map(|event| event.id);
        self.events.push(event.at(self.session, self.at, parent));
    }
}
