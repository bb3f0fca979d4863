//! Shows the events of the session, and forwards them to the state.

use std::sync::Arc;
use std::time::Instant;

use allstop_agent::AgentEvent;
use allstop_core::ids::QuestionId;
use allstop_core::record::SessionRecord;
use allstop_core::{CallId, describe_call};
use allstop_session::{OpenQuestion, SessionEvent, SessionEventKind};
use allstop_terminal::InputMode;
use allstop_tools::PermissionAnswer;
use futures::FutureExt as _;
use futures::stream::StreamExt as _;

use super::pending::FinishedWork;
use super::{ChatLoop, KnownCall};
use crate::chat::said::Said;
use crate::chat::state::{ChatEvent, MessageNumber};
use crate::display::EventView as _;
use crate::display::recorded;

impl ChatLoop<'_> {
    pub(super) fn session_event(&mut self, event: SessionEvent) {
        let number = match &event.message {
            Some(id) => match self.numbers.get(id) {
                Some(number) => Some(*number),
                None => return,
            },
            None => None,
        };
        match event.kind {
            SessionEventKind::Recorded { record, .. } => self.recorded(&record, number),
            SessionEventKind::Live(event) => self.live(&event, number),
            SessionEventKind::PermissionAsked(question) => self.ask(question),
            SessionEventKind::PermissionAnswered { id, answer } => {
                self.question_closed(&id, answer.as_ref());
            }
            SessionEventKind::ServerAsked(question) => {
                let said = self.forms.asked(*question);
                self.show_form(said);
            }
            SessionEventKind::ServerQuestionClosed { id } => {
                let said = self.forms.closed(&id);
                self.show_form(said);
            }
            SessionEventKind::LateAnswer { call_id, name } => {
                let said = recorded::describe_late_answer(&call_id, &name);
                self.note(&said);
            }
            SessionEventKind::Missed { count } => {
                self.chat.view.live.missed(count);
                let (open, closed) = self.questions.catch_up(&self.chat.session);
                for question in open {
                    self.ask(question);
                }
                for id in closed {
                    self.question_closed(&id, None);
                }
                let said = self.forms.catch_up(&self.chat.session);
                self.show_form(said);
            }
            SessionEventKind::BackgroundChanged { running } => {
                self.status.set_background(running.len());
            }
            SessionEventKind::AssistantIdle { running, .. } => {
                self.status.set_background(running.len());
                if let Some(said) = recorded::describe_running(&running) {
                    self.note(&said);
                }
            }
            SessionEventKind::SessionIdle { detached, .. } => {
                self.status.set_background(detached.len());
            }
        }
    }

    fn ask(&mut self, question: OpenQuestion) {
        let calls = &self.calls;
        let label = |id: &CallId| {
            let call = calls.iter().find(|call| call.id == *id);
            call.map(|call| call.label.clone())
        };
        self.chat.view.live.interrupt();
        if self.mode == InputMode::Lines {
            // The beginning of a message that the user has not sent must not become a part of the answer.
            self.reader.forget_unsent();
        }
        self.chat.view.live.asked(&question.question);
        if let Some(question) = self.questions.ask(question, &self.chat.session, label) {
            self.notify("Allstop asks a question");
            self.apply(ChatEvent::Asked(question));
        }
    }

    /// Shows the question of a server, if there is one to show.
    fn show_form(&mut self, said: Option<Said>) {
        if let Some(said) = said {
            self.chat.view.live.interrupt();
            self.chat.view.said(&said);
            self.notify("a server asks a question");
        }
    }

    fn question_closed(&mut self, id: &QuestionId, answer: Option<&PermissionAnswer>) {
        let by = self.chat.remote.answered_by(id);
        if let Some(number) = self.questions.closed(id, answer, by.as_deref()) {
            self.apply(ChatEvent::QuestionOver(number));
        }
    }

    /// Handles the beginning of a turn. The outcomes of all earlier messages have arrived by now, and are shown first.
    /// If the outcome of this turn's own message has also arrived, it returns to `pending` and is shown later.
    fn began(&mut self, number: Option<MessageNumber>) {
        let mut later = Vec::new();
        while let Some(done) = self.known() {
            match done {
                FinishedWork::Outcome(of, _) if number.is_some_and(|began| of >= began) => {
                    later.push(done);
                }
                done => self.done(done),
            }
        }
        self.apply(ChatEvent::Began(number));
        for done in later {
            self.pending.push(std::future::ready(done).boxed());
        }
    }

    /// Returns a finished result that has not been shown.
    fn known(&mut self) -> Option<FinishedWork> {
        let held = self.held.take();
        held.or_else(|| self.pending.next().now_or_never()?)
    }

    fn recorded(&mut self, record: &SessionRecord, number: Option<MessageNumber>) {
        self.status.record(record, Instant::now());
        match record {
            SessionRecord::TurnStarted { .. } => self.began(number),
            SessionRecord::MessageSteered { message, .. } => {
                if let Some(number) = self.numbers.get(message) {
                    self.apply(ChatEvent::Taken(*number));
                }
            }
            _ => {}
        }
        if let Some(said) = recorded::describe(record, number.is_some()) {
            self.note(&said);
        }
        if let SessionRecord::BackgroundEnded { id, .. } = record {
            let works = self.chat.session.background();
            if let Some(work) = works.iter().find(|work| work.id == *id) {
                self.chat.view.denials(&work.denials(), &self.outputs);
            }
        }
    }

    fn live(&mut self, event: &AgentEvent, number: Option<MessageNumber>) {
        self.outputs.event(event);
        match event {
            AgentEvent::TurnStarted { .. } => self.began(number),
            AgentEvent::SummaryStarted { turns, .. } => {
                self.status.summary_started();
                // Before a turn, the live view does not show the events of its message yet.
                if !self.state.shows(number) {
                    self.note(&recorded::describe_summary_start(*turns));
                }
            }
            AgentEvent::ToolRequested {
                call_id,
                name,
                arguments,
            } => self.calls.push(KnownCall {
                id: call_id.clone(),
                name: Arc::clone(name),
                label: describe_call(name, arguments),
                runs: false,
            }),
            AgentEvent::ToolStarted { call_id, .. } => {
                let mut calls = self.calls.iter_mut();
                if let Some(call) = calls.find(|call| call.id == *call_id) {
                    call.runs = true;
                }
            }
            AgentEvent::ToolFinished { call_id, .. } => {
                self.calls.retain(|call| call.id != *call_id);
            }
            _ => {}
        }
        if self.state.shows(number) {
            self.chat.view.live.event(event);
        }
        if let AgentEvent::TurnEnded { .. } = event {
            self.calls.clear();
            if number.is_none() {
                self.chat.view.end_turn(None);
            }
            self.notify("the turn has ended");
            self.apply(ChatEvent::TurnEnded(number));
        }
    }
}
