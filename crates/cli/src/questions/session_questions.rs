//! Permission questions of a session at the terminal: shows the questions, passes the answers to the session, and shows
//! the results.

use std::collections::HashMap;

use allstop_core::CallId;
use allstop_core::ids::QuestionId;
use allstop_remote::ShownQuestion;
use allstop_session::{AnswerResult, OpenQuestion, Session, SessionEventKind};
use allstop_terminal::{
    OutputPriority, OutputQueue, QuestionPrompt, QuestionText, RestHint, Style, TerminalQuestion,
    TextRole, escape_question, styled,
};
use allstop_tools::PermissionAnswer;
use futures::FutureExt as _;

use super::question_lines::question_content;

/// Unanswered questions of a session.
#[derive(Debug)]
pub(crate) struct SessionQuestions {
    queue: OutputQueue,
    style: Style,
    rest: RestHint,
    unanswered: HashMap<u64, UnansweredQuestion>,
    asked: u64,
}

/// A question that is shown and has no answer yet.
#[derive(Debug)]
pub(crate) struct UnansweredQuestion {
    pub(crate) id: QuestionId,
    /// Escaped id of the call that the question is about.
    call: String,
    text: QuestionText,
}

impl SessionQuestions {
    /// Starts without questions. Later questions are shown on `queue`.
    pub(crate) fn new(queue: OutputQueue, style: Style, rest: RestHint) -> Self {
        Self {
            queue,
            style,
            rest,
            unanswered: HashMap::new(),
            asked: 0,
        }
    }

    /// Starts without questions. Later questions are shown above the prompt.
    pub(crate) fn at(prompt: &QuestionPrompt) -> Self {
        Self::new(prompt.queue().clone(), prompt.style(), prompt.rest_hint())
    }

    /// Shows a question; `None` if it is already shown. `label` returns the label of a call of this conversation by its
    /// id.
    pub(crate) fn ask(
        &mut self,
        question: OpenQuestion,
        session: &Session,
        label: impl FnOnce(&CallId) -> Option<String>,
    ) -> Option<TerminalQuestion> {
        self.show(ShownQuestion::of(question, session, label))
    }

    /// Shows a question, which may come from a session in another process; `None` if the question is already shown.
    pub(crate) fn show(&mut self, question: ShownQuestion) -> Option<TerminalQuestion> {
        let mut shown = self.unanswered.values();
        if shown.any(|shown| shown.id == question.id) {
            return None;
        }
        self.asked += 1;
        // The id of the call must not contain invisible characters, like all text of a question.
        let call = escape_question(question.call_id.as_str()).into_owned();
        let size = self.queue.size();
        let content = question_content(&question, &call, self.style);
        let mut text = QuestionText::new(content, (self.style, self.rest), size);
        let page = text.first_page(size);
        self.queue.lines(page, OutputPriority::Required);
        let rows_left = text.rows_left();
        let unanswered = UnansweredQuestion {
            id: question.id,
            call: call.clone(),
            text,
        };
        self.unanswered.insert(self.asked, unanswered);
        Some(TerminalQuestion {
            number: self.asked,
            call,
            always: question.always,
            rows_left,
        })
    }

    /// Shows the next page of a question. Returns the number of rows that are not shown yet.
    pub(crate) fn show_more(&mut self, number: u64) -> usize {
        let Some(question) = self.unanswered.get_mut(&number) else {
            return 0;
        };
        let page = question.text.next_page(self.queue.size());
        self.queue.lines(page, OutputPriority::Required);
        question.text.rows_left()
    }

    /// Finds changes after missed events. Returns the open questions of the session, and the ids of shown questions
    /// that are no longer open.
    pub(crate) fn catch_up(&self, session: &Session) -> (Vec<OpenQuestion>, Vec<QuestionId>) {
        let mut open = Vec::new();
        // The first events of a new subscription are the open questions.
        let mut events = session.subscribe(None);
        while let Some(Ok(Some(event))) = events.next().now_or_never()
            && let SessionEventKind::PermissionAsked(question) = event.kind
        {
            open.push(question);
        }
        let is_closed = |id: &QuestionId| open.iter().all(|question| question.id != *id);
        let shown = self.unanswered.values().map(|shown| shown.id.clone());
        let closed = shown.filter(is_closed).collect();
        (open, closed)
    }

    /// Passes an answer from the terminal to the session.
    pub(crate) fn answer(&mut self, number: u64, answer: &PermissionAnswer, session: &Session) {
        let Some(question) = self.unanswered.remove(&number) else {
            return;
        };
        let is_taken = session.answer(&question.id, answer.clone()) == AnswerResult::Taken;
        self.show_answer(&question, answer, is_taken);
    }

    /// Removes and returns a question, because the user of this terminal answers it.
    pub(crate) fn take(&mut self, number: u64) -> Option<UnansweredQuestion> {
        self.unanswered.remove(&number)
    }

    /// Shows the answer of this terminal. `is_taken` is true if this answer was the first one and therefore counts.
    pub(crate) fn show_answer(
        &self,
        question: &UnansweredQuestion,
        answer: &PermissionAnswer,
        is_taken: bool,
    ) {
        let said = if is_taken {
            describe_answer(answer)
        } else {
            "too late: the question was already answered, or a stop withdrew it".to_owned()
        };
        self.show_result(question, &said);
    }

    /// Shows that another client answered a question, or that the question was withdrawn. `by` is the name of the
    /// client, and `answer` is `None` if the question was withdrawn. Returns the number of the question; `None` if this
    /// terminal does not show it, for example because the user answered here.
    pub(crate) fn closed(
        &mut self,
        id: &QuestionId,
        answer: Option<&PermissionAnswer>,
        by: Option<&str>,
    ) -> Option<u64> {
        let mut unanswered = self.unanswered.iter();
        let number = *unanswered.find(|(_, question)| question.id == *id)?.0;
        let question = self.unanswered.remove(&number)?;
        let mut said = answer.map_or("withdrawn".to_owned(), describe_answer);
        if let Some(by) = by {
            said.extend([", answered by ", by]);
        }
        self.show_result(&question, &said);
        Some(number)
    }

    /// Shows the result of a question. If other questions are open, also shows the id of this question's call.
    fn show_result(&self, question: &UnansweredQuestion, said: &str) {
        let of = if self.unanswered.is_empty() {
            String::new()
        } else {
            format!(" ({})", question.call)
        };
        let line = self.queue.fitted(styled!["  ", said, of]);
        let line = self.style.paint(TextRole::Dim, line);
        self.queue.lines(line, OutputPriority::Required);
    }
}

fn describe_answer(answer: &PermissionAnswer) -> String {
    match answer {
        PermissionAnswer::AllowOnce => "yes, once".to_owned(),
        PermissionAnswer::AllowForSession => "yes, always".to_owned(),
        PermissionAnswer::Deny {
            reason: Some(reason),
        } => format!("no: {reason}"),
        PermissionAnswer::Deny { reason: None } | PermissionAnswer::Unanswered => "no".to_owned(),
    }
}
