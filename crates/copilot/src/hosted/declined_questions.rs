//! Answers that no user is available, to permission questions that were open when the client attached.
//!
//! A client that resumes a session gets the open questions again, and the SDKs pass each of them to the handler of the
//! program. A handler without a user must not end a question that another client, or the same program with
//! `session.permissions.handlePendingPermissionRequest`, answers later. So such an answer counts only after a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::ids::QuestionId;
use allstop_core::receipt::ItemKind;
use allstop_scope::WorkSpec;
use allstop_tools::PermissionAnswer;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::HostedSession;
use crate::connection::ClientId;

/// Open questions, each with the clients that have no user for it.
#[derive(Debug, Default)]
pub(super) struct DeclinedQuestions(Mutex<HashMap<QuestionId, HashSet<ClientId>>>);

impl DeclinedQuestions {
    /// Records that a client has no user for a question. Returns true if this is the first such client.
    fn add(&self, question: &QuestionId, client: ClientId) -> bool {
        let mut declined = self.0.lock();
        let clients = declined.entry(question.clone()).or_default();
        clients.insert(client);
        clients.len() == 1
    }

    fn contains(&self, question: &QuestionId, client: ClientId) -> bool {
        let declined = self.0.lock();
        let clients = declined.get(question);
        clients.is_some_and(|clients| clients.contains(&client))
    }

    fn remove(&self, question: &QuestionId) {
        self.0.lock().remove(question);
    }
}

impl HostedSession {
    /// Records that a client has no user for a permission question. Returns false if the question was not open when the
    /// client attached: the caller then answers the question.
    ///
    /// The question stays open for this time, and then as long as a client can still answer it.
    pub(crate) fn decline(
        self: &Arc<Self>,
        question: &QuestionId,
        client: ClientId,
        open_for: Duration,
    ) -> bool {
        if !self.is_open(question) || !self.attached_clients.was_asked_again(client, question) {
            return false;
        }
        if !self.declined.add(question, client) {
            return true;
        }
        let (own, question) = (Arc::clone(self), question.clone());
        let spec = WorkSpec::new(ItemKind::Future, "question without a user");
        let spawned = self.scope.spawn(spec, move |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("question without a user") => {}
                () = own.end_declined(&question, open_for) => {}
            }
            own.declined.remove(&question);
        });
        // In a session that is being closed, the stop ends the question.
        drop(spawned);
        true
    }

    fn is_open(&self, question: &QuestionId) -> bool {
        let questions = self.session.questions();
        questions.iter().any(|open| open.id == *question)
    }

    /// Ends a question that no client has a user for.
    async fn end_declined(&self, question: &QuestionId, open_for: Duration) {
        while self.is_open(question) {
            sleep(open_for).await;
            if !self.can_be_answered(question) {
                // An answer that came first counts.
                let _first_or_not = self.session.answer(question, PermissionAnswer::Unanswered);
                return;
            }
        }
    }

    /// True if an attached client has a handler and has not answered that no user is available, and if no client is
    /// attached: a client that resumes the session may answer.
    fn can_be_answered(&self, question: &QuestionId) -> bool {
        let clients = self.attached_clients();
        let may_answer = |client| !self.declined.contains(question, client);
        clients.is_empty()
            || clients.iter().any(|attached| {
                attached.client_options.permissions && may_answer(attached.client.id)
            })
    }
}
