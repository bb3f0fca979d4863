//! Permission questions: who asks, and the answer.

use std::fmt::Write as _;

use allstop_core::CallId;
use allstop_core::ids::QuestionId;
use allstop_core::terminal_text::{escape, is_unsafe_in_question};
use allstop_session::{AnswerResult, OpenQuestion};
use allstop_tools::PermissionAnswer;

use super::Talk;
use crate::chat::desk::{Ask, Event};

/// A question that nobody has answered yet.
pub(super) struct Waiting {
    pub(super) id: QuestionId,
    /// The call that it is about.
    call: String,
}

impl Talk<'_> {
    pub(super) fn asked(&mut self, question: OpenQuestion) {
        self.asked += 1;
        let number = self.asked;
        let asker = self.asker(&question.agents);
        // As the rest of a question: nothing of it may be invisible.
        let call = question.question.call_id.as_str();
        let call = escape(call, is_unsafe_in_question).into_owned();
        let screen = &self.chat.screen;
        screen.question(&question.question.text, &call, asker.as_deref());
        let waiting = Waiting {
            id: question.id,
            call: call.clone(),
        };
        self.questions.insert(number, waiting);
        self.apply(Event::Asked(Ask {
            number,
            call,
            always: question.question.session_scope,
        }));
    }

    /// Somebody else has answered, or nobody can any more.
    pub(super) fn question_over(&mut self, number: u64, allowed: bool) {
        let Some(waiting) = self.questions.remove(&number) else {
            return;
        };
        let said = if allowed { "  yes" } else { "  withdrawn" };
        self.say_of(&waiting, said);
        self.apply(Event::QuestionOver(number));
    }

    /// The sub-agent that asks, by the calls that lead to it: the first of them is one of this conversation, and by now
    /// may go on in the background.
    fn asker(&self, agents: &[CallId]) -> Option<String> {
        let (first, below) = agents.split_first()?;
        let works = self.chat.session.background();
        let mut asker = if let Some(work) = works.iter().find(|work| work.call_id == *first) {
            format!("agent {}: {}", work.id, work.name)
        } else {
            let call = self.calls.iter().find(|call| call.id == *first);
            let label = call.map_or("agent", |call| &call.label);
            format!("{label} ({first})")
        };
        for call in below {
            // Writing to a string cannot fail.
            let _ = write!(asker, " › agent {call}");
        }
        Some(asker)
    }

    pub(super) fn answer(&mut self, number: u64, answer: PermissionAnswer) {
        let Some(waiting) = self.questions.remove(&number) else {
            return;
        };
        let said = match (self.chat.session.answer(&waiting.id, answer), answer) {
            (AnswerResult::Taken, PermissionAnswer::AllowOnce) => "  yes, once",
            (AnswerResult::Taken, PermissionAnswer::AllowForSession) => "  yes, always",
            (AnswerResult::Taken, PermissionAnswer::Deny | PermissionAnswer::Unanswered) => "  no",
            (AnswerResult::TooLate | AnswerResult::NotFound, _) => {
                "  too late: the question was answered, or a stop took it away"
            }
        };
        self.say_of(&waiting, said);
    }

    /// Shows the result of a question; where others wait, of which one.
    fn say_of(&self, waiting: &Waiting, said: &str) {
        let of = if self.questions.is_empty() {
            String::new()
        } else {
            format!(" ({})", waiting.call)
        };
        self.chat.screen.note(&format!("{said}{of}"));
    }
}
