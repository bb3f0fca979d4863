//! Answers to permission questions that no client has to answer.

use allstop_session::OpenQuestion;
use allstop_tools::PermissionAnswer;

use super::HostedSession;

impl HostedSession {
    /// Answers a permission question that no handler of an attached client answers. Without a default answer, the question
    /// stays open: the program answers it with `session.permissions.handlePendingPermissionRequest`.
    pub(super) fn answer_unasked(&self, question: &OpenQuestion) {
        let default_answer = self.default_answer.clone();
        if default_answer == PermissionAnswer::Unanswered {
            return;
        }
        let answer = question.question.restrict_advance_answer(default_answer);
        let _first_or_not = self.session.answer(&question.id, answer);
    }

    pub(crate) fn approves_all(&self) -> bool {
        self.facts.approves_all()
    }

    /// Allows all calls without a permission question, or goes back to the questions. Answers the open
    /// questions. Returns the former value.
    pub(crate) fn set_approves_all(&self, approves_all: bool) -> bool {
        let before = self.facts.set_approves_all(approves_all);
        if approves_all {
            for question in self.session.questions() {
                self.approve(&question);
            }
        }
        before
    }

    pub(super) fn approve(&self, question: &OpenQuestion) {
        let answer = question
            .question
            .restrict_advance_answer(PermissionAnswer::AllowOnce);
        let _first_or_not = self.session.answer(&question.id, answer);
    }
}
