//! Permission questions: events that any subscriber can answer, once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop_core::ids::QuestionId;
use allstop_tools::{Answer, Prompter, Question};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::events::{Hub, OpenQuestion, SessionEventKind};

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an answer may come too late"]
pub enum Answered {
    /// It is the question's answer.
    Taken,
    /// Somebody answered before, or a stop took the question away.
    TooLate,
    /// There never was such a question.
    NotFound,
}

/// The questions of one session that wait for an answer.
#[derive(Debug)]
pub(crate) struct Questions {
    hub: Arc<Hub>,
    /// Who is asked where nobody watches the session.
    unwatched: Answer,
    asked: AtomicU64,
    open: Mutex<BTreeMap<u64, (OpenQuestion, oneshot::Sender<Answer>)>>,
}

impl Questions {
    pub(crate) fn new(hub: Arc<Hub>, unwatched: Answer) -> Arc<Self> {
        Arc::new(Self {
            hub,
            unwatched,
            asked: AtomicU64::new(0),
            open: Mutex::default(),
        })
    }

    pub(crate) fn open(&self) -> Vec<OpenQuestion> {
        self.open
            .lock()
            .values()
            .map(|(open, _)| open.clone())
            .collect()
    }

    pub(crate) fn answer(&self, id: &QuestionId, answer: Answer) -> Answered {
        let Some(number) = number_of(id) else {
            return Answered::NotFound;
        };
        // Whoever takes the entry out answers it: there is no second one.
        match self.open.lock().remove(&number) {
            Some((_, tx)) => match tx.send(answer) {
                Ok(()) => Answered::Taken,
                Err(_) => Answered::TooLate,
            },
            None if number <= self.asked.load(Ordering::Relaxed) => Answered::TooLate,
            None => Answered::NotFound,
        }
    }
}

/// `q_7`
fn number_of(id: &QuestionId) -> Option<u64> {
    id.as_str().strip_prefix("q_")?.parse().ok()
}

/// Takes the question away again, whatever becomes of whoever asked.
struct Asking<'a> {
    questions: &'a Questions,
    number: u64,
    id: QuestionId,
    answer: Option<Answer>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.questions.open.lock().remove(&self.number);
        let allowed = self.answer.is_some_and(|answer| answer != Answer::Deny);
        let id = self.id.clone();
        self.questions
            .hub
            .send(|| SessionEventKind::PermissionAnswered { id, allowed });
    }
}

impl Prompter for Questions {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            if !self.hub.is_watched() {
                return self.unwatched;
            }
            let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            let id = QuestionId::from(format!("q_{number}"));
            let open = OpenQuestion {
                id: id.clone(),
                question,
            };
            let (tx, rx) = oneshot::channel();
            self.open.lock().insert(number, (open.clone(), tx));
            let mut asking = Asking {
                questions: self,
                number,
                id,
                answer: None,
            };
            self.hub.send(|| SessionEventKind::PermissionAsked(open));
            // The sender is dropped only with its answer, or with the question itself.
            let answer = rx.await.unwrap_or(Answer::Deny);
            asking.answer = Some(answer);
            answer
        })
    }
}
