//! Questions of tools' servers: events that a client with a form can answer, once.
//!
//! Only some clients can show a form. A question waits while such a client is connected. Without one, and when the last
//! one leaves, the question counts as [`FormAnswer::Unanswered`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop_core::SessionId;
use allstop_core::ids::QuestionId;
use allstop_tools::{FormAnswer, ServerQuestion};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::answer_result::{AnswerResult, agents_of};
use crate::events::{EventHub, OpenServerQuestion, SessionEventKind};

/// A client that answers the questions of servers. Dropping this value withdraws the client.
#[derive(Debug)]
#[must_use = "the client counts until this value is dropped"]
pub struct FormClient(watch::Sender<usize>);

impl Drop for FormClient {
    fn drop(&mut self) {
        self.0.send_modify(|clients| *clients -= 1);
    }
}

/// Open questions of the servers of one session.
#[derive(Debug)]
pub(crate) struct ServerQuestions {
    hub: Arc<EventHub>,
    session: SessionId,
    /// Number of clients with forms.
    clients: watch::Sender<usize>,
    asked: AtomicU64,
    open: Mutex<BTreeMap<u64, (OpenServerQuestion, oneshot::Sender<FormAnswer>)>>,
}

impl ServerQuestions {
    pub(crate) fn new(session: SessionId, hub: Arc<EventHub>) -> Self {
        Self {
            hub,
            session,
            clients: watch::Sender::new(0),
            asked: AtomicU64::new(0),
            open: Mutex::default(),
        }
    }

    pub(crate) fn client(&self) -> FormClient {
        self.clients.send_modify(|clients| *clients += 1);
        FormClient(self.clients.clone())
    }

    pub(crate) fn open(&self) -> Vec<OpenServerQuestion> {
        let open = self.open.lock();
        open.values().map(|(open, _)| open.clone()).collect()
    }

    pub(crate) fn answer(&self, id: &QuestionId, answer: FormAnswer) -> AnswerResult {
        let Some(number) = number_of(id) else {
            return AnswerResult::NotFound;
        };
        // Only the caller that removes the entry sends the answer, so there is no second answer.
        let removed = self.open.lock().remove(&number);
        match removed {
            Some((_, tx)) => match tx.send(answer) {
                Ok(()) => AnswerResult::Taken,
                Err(_) => AnswerResult::TooLate,
            },
            None if number <= self.asked.load(Ordering::Relaxed) => AnswerResult::TooLate,
            None => AnswerResult::NotFound,
        }
    }

    /// Asks a question. Dropping the future removes the question.
    pub(crate) async fn ask(&self, question: ServerQuestion) -> FormAnswer {
        let mut clients = self.clients.subscribe();
        if *clients.borrow_and_update() == 0 {
            return FormAnswer::Unanswered;
        }
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let id = QuestionId::from(format!("form_{number}"));
        let open = OpenServerQuestion {
            id: id.clone(),
            agents: agents_of(&self.session, &question.session_id),
            question,
        };
        let (tx, answered) = oneshot::channel();
        self.open.lock().insert(number, (open.clone(), tx));
        let _closes = OpenGuard {
            questions: self,
            number,
            id,
        };
        self.hub
            .send(|| SessionEventKind::ServerAsked(Box::new(open)));
        tokio::select! {
            biased;
            answer = answered => answer.unwrap_or(FormAnswer::Cancel),
            // The wait cannot fail, because this value has a sender.
            _ = clients.wait_for(|clients| *clients == 0) => FormAnswer::Unanswered,
        }
    }
}

/// Guard that removes the question, even if the future of the caller is dropped.
struct OpenGuard<'a> {
    questions: &'a ServerQuestions,
    number: u64,
    id: QuestionId,
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.questions.open.lock().remove(&self.number);
        let id = self.id.clone();
        self.questions
            .hub
            .send(|| SessionEventKind::ServerQuestionClosed { id });
    }
}

/// Parses ids like `form_7`.
fn number_of(id: &QuestionId) -> Option<u64> {
    id.as_str().strip_prefix("form_")?.parse().ok()
}
