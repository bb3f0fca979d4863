//! Permission questions of a session at a terminal: content, answers and results.

mod question_lines;
mod session_questions;

use allstop_terminal::QuestionAnswer;
use allstop_tools::PermissionAnswer;

pub(crate) use session_questions::{SessionQuestions, UnansweredQuestion};

/// Converts a user's answer to a permission.
pub(crate) fn permission_of(answer: &QuestionAnswer) -> PermissionAnswer {
    match answer {
        QuestionAnswer::Yes => PermissionAnswer::AllowOnce,
        QuestionAnswer::Always => PermissionAnswer::AllowForSession,
        QuestionAnswer::No(reason) => PermissionAnswer::deny_because(reason),
    }
}
