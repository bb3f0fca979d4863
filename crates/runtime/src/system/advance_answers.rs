//! Permission questions with an answer in advance, beside questions of servers that a person answers.

use std::sync::Arc;

use allstop_tools::{FormAnswer, PermissionAnswer, PermissionQuestion, Prompter, ServerQuestion};
use futures::future::BoxFuture;

/// Prompter whose permission questions go to one prompter, and the questions of servers to another. No answer in advance
/// fits the question of a server, so the clients of the session get it.
#[derive(Debug)]
pub(super) struct AdvanceAnswers {
    pub(super) permissions: Arc<dyn Prompter>,
    pub(super) servers: Arc<dyn Prompter>,
}

impl Prompter for AdvanceAnswers {
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        self.permissions.ask(question)
    }

    fn answer_server(&self, question: ServerQuestion) -> BoxFuture<'_, FormAnswer> {
        self.servers.answer_server(question)
    }

    fn shows_questions(&self) -> bool {
        self.permissions.shows_questions()
    }
}
