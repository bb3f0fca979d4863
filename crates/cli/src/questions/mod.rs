//! Permission questions of a session at a terminal: content, answers and results.

mod question_lines;
mod session_questions;

use allstop_terminal::QuestionAnswer;
use allstop_tools::PermissionAnswer;

pub(crate) use session_questions::{SessionQuestions, UnansweredQuestion};

/// The permission that a person gives with an answer.
pub(crate) fn permission_of(answer: &QuestionAnswer) -> PermissionAnswer {
    match answer {
        QuestionAnswer::Yes => PermissionAnswer::AllowOnce,
        QuestionAnswer::Always => PermissionAnswer::AllowForSession,
        QuestionAnswer::No(reason) => PermissionAnswer::deny_because(reason),
    }
}
