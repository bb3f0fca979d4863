//! Permission questions of a run at the terminal.

use std::collections::HashMap;

use allstop_agent::AgentEvent;
use allstop_core::ids::QuestionId;
use allstop_core::{CallId, describe_call};
use allstop_session::{OpenQuestion, Session};
use allstop_terminal::{OutputPriority, PromptReply, QuestionPrompt, TextRole};
use allstop_tools::PermissionAnswer;

use crate::questions::{SessionQuestions, permission_of};

/// Open questions of the run, and the prompt that asks them.
#[derive(Debug)]
pub(super) struct RunQuestions {
    session: Session,
    prompt: QuestionPrompt,
    questions: SessionQuestions,
    /// Labels of the calls that have not ended.
    labels: HashMap<CallId, String>,
}

impl RunQuestions {
    /// Starts without questions.
    pub(super) fn new(prompt: QuestionPrompt, session: Session) -> Self {
        Self {
            session,
            questions: SessionQuestions::at(&prompt),
            prompt,
            labels: HashMap::new(),
        }
    }

    /// Asks a permission question. If the terminal is gone, denies the call. In the background, the question waits until
    /// `fg`, like the read of another program.
    pub(super) fn ask(&mut self, question: OpenQuestion) {
        if self.prompt.is_gone() {
            // The question may already be closed. The answer then has no effect.
            let _too_late = self.session.answer(&question.id, PermissionAnswer::deny());
            return;
        }
        self.prompt.begin();
        let labels = &self.labels;
        let label = |id: &CallId| labels.get(id).cloned();
        if let Some(question) = self.questions.ask(question, &self.session, label) {
            self.prompt.open(question);
            if !self.prompt.can_ask() {
                let said = "  the question waits: `fg` brings Allstop to the foreground";
                let line = self.prompt.style().paint(TextRole::Warning, said);
                self.prompt.queue().lines(line, OutputPriority::Required);
            }
        }
    }

    /// Opens and closes questions after missed events, so that the terminal shows the questions that are open in the
    /// session.
    pub(super) fn catch_up(&mut self) {
        let (open, closed) = self.questions.catch_up(&self.session);
        for question in open {
            self.ask(question);
        }
        for id in closed {
            self.closed(&id, None, None);
        }
    }

    /// Closes a question that another client (`by`) answered, or that was withdrawn.
    pub(super) fn closed(
        &mut self,
        id: &QuestionId,
        answer: Option<&PermissionAnswer>,
        by: Option<&str>,
    ) {
        if let Some(number) = self.questions.closed(id, answer, by) {
            self.prompt.close(number);
        }
    }

    /// Waits for the user's next reply.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> PromptReply {
        self.prompt.next().await
    }

    /// Handles a reply of the user: passes an answer to the session, or shows more of a question.
    pub(super) fn reply(&mut self, reply: PromptReply) {
        match reply {
            PromptReply::Answer(number, answer) => {
                let answer = permission_of(&answer);
                self.questions.answer(number, &answer, &self.session);
            }
            PromptReply::ShowMore(number) => {
                let rows_left = self.questions.show_more(number);
                self.prompt.shown_more(number, rows_left);
            }
        }
    }

    /// Tracks the calls of the run, to show their labels in questions.
    pub(super) fn event(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::ToolRequested {
                call_id,
                name,
                arguments,
            } => {
                let label = describe_call(name, arguments);
                self.labels.insert(call_id.clone(), label);
            }
            AgentEvent::ToolFinished { call_id, .. } => {
                self.labels.remove(call_id);
            }
            AgentEvent::TurnEnded { .. } => self.labels.clear(),
            _ => {}
        }
    }

    /// Returns the terminal to the shell while the process is suspended.
    pub(super) fn suspend(&mut self) {
        self.prompt.suspend();
    }

    /// Takes the terminal again, if a question is open.
    pub(super) fn resume(&self) {
        self.prompt.resume();
    }

    /// Redraws the open question.
    pub(super) fn redraw(&self) {
        self.prompt.show();
    }
}
