//! Permission questions: events that any subscriber can answer, once.
//!
//! A question waits while the session has subscribers; later subscribers also receive the question. After the last
//! subscriber has left, the question stays open for [`SessionOptions::unanswered_after`], so that a client can return.
//! Then the question counts as [`PermissionAnswer::Unanswered`], which is a denial with that reason.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allstop_core::SessionId;
use allstop_core::ids::QuestionId;
use allstop_tools::{FormAnswer, PermissionAnswer, PermissionQuestion, Prompter, ServerQuestion};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::answer_result::{AnswerResult, agents_of};
use crate::events::{EventHub, OpenQuestion, SessionEventKind};
use crate::server_questions::ServerQuestions;
use crate::source::SessionOptions;

/// Open questions of one session.
#[derive(Debug)]
pub(crate) struct Questions {
    hub: Arc<EventHub>,
    session: SessionId,
    /// Answer while the session has no subscriber.
    unwatched: PermissionAnswer,
    unanswered_after: Option<Duration>,
    asked: AtomicU64,
    open: Mutex<BTreeMap<u64, (OpenQuestion, oneshot::Sender<PermissionAnswer>)>>,
    pub(crate) of_servers: ServerQuestions,
}

impl Questions {
    pub(crate) fn new(
        session: SessionId,
        hub: Arc<EventHub>,
        options: &SessionOptions,
    ) -> Arc<Self> {
        Arc::new(Self {
            of_servers: ServerQuestions::new(session.clone(), Arc::clone(&hub)),
            hub,
            session,
            unwatched: options.unwatched.clone(),
            unanswered_after: options.unanswered_after,
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

    pub(crate) fn answer(&self, id: &QuestionId, answer: PermissionAnswer) -> AnswerResult {
        let Some(number) = number_of(id) else {
            return AnswerResult::NotFound;
        };
        // Only the caller that removes the entry sends the answer, so there is no second answer.
        let mut open = self.open.lock();
        match open.remove(&number) {
            Some((asked, tx)) => {
                // The answer also covers these questions, so they are answered, not withdrawn.
                let covered: Vec<u64> = match &answer {
                    PermissionAnswer::AllowForSession => open
                        .iter()
                        .filter(|(_, (other, _))| other.question.is_covered_by(&asked.question))
                        .map(|(number, _)| *number)
                        .collect(),
                    _ => Vec::new(),
                };
                for number in covered {
                    if let Some((_, tx)) = open.remove(&number) {
                        // Fails if a stop has dropped the question.
                        drop(tx.send(answer.clone()));
                    }
                }
                match tx.send(answer) {
                    Ok(()) => AnswerResult::Taken,
                    Err(_) => AnswerResult::TooLate,
                }
            }
            None if number <= self.asked.load(Ordering::Relaxed) => AnswerResult::TooLate,
            None => AnswerResult::NotFound,
        }
    }
}

/// Parses ids like `q_7`.
fn number_of(id: &QuestionId) -> Option<u64> {
    id.as_str().strip_prefix("q_")?.parse().ok()
}

/// Guard that removes the question, even if the future of the caller is dropped.
struct OpenQuestionGuard<'a> {
    questions: &'a Questions,
    number: u64,
    id: QuestionId,
    answer: Option<PermissionAnswer>,
}

impl Drop for OpenQuestionGuard<'_> {
    fn drop(&mut self) {
        self.questions.open.lock().remove(&self.number);
        let answer = self.answer.take();
        let id = self.id.clone();
        self.questions
            .hub
            .send(|| SessionEventKind::PermissionAnswered { id, answer });
    }
}

impl Prompter for Questions {
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(async move {
            if !self.hub.is_watched() {
                return question.restrict_advance_answer(self.unwatched.clone());
            }
            let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            let id = QuestionId::from(format!("q_{number}"));
            let open = OpenQuestion {
                id: id.clone(),
                agents: agents_of(&self.session, &question.session_id),
                question,
            };
            let (tx, mut rx) = oneshot::channel();
            self.open.lock().insert(number, (open.clone(), tx));
            let mut asking = OpenQuestionGuard {
                questions: self,
                number,
                id,
                answer: None,
            };
            self.hub.send(|| SessionEventKind::PermissionAsked(open));
            let unwatched_for = async {
                match self.unanswered_after {
                    Some(after) => self.hub.unwatched_for(after).await,
                    None => std::future::pending().await,
                }
            };
            let answer = tokio::select! {
                biased;
                // The sender is dropped only after it has sent the answer, or together with the question.
                answer = &mut rx => answer.unwrap_or(PermissionAnswer::deny()),
                // As in [`Questions::answer`], only the side that removes the entry answers the question.
                () = unwatched_for => {
                    let is_ours = self.open.lock().remove(&number).is_some();
                    if is_ours {
                        PermissionAnswer::Unanswered
                    } else {
                        (&mut rx).await.unwrap_or(PermissionAnswer::deny())
                    }
                }
            };
            asking.answer = Some(answer.clone());
            answer
        })
    }

    fn answer_server(&self, question: ServerQuestion) -> BoxFuture<'_, FormAnswer> {
        Box::pin(self.of_servers.ask(question))
    }

    fn shows_questions(&self) -> bool {
        self.hub.is_watched()
    }
}
