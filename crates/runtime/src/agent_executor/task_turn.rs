//! The turn of one task, which the task's executor follows through the events of the session.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use allstop_agent::AgentEvent;
use allstop_core::ids::QuestionId;
use allstop_core::record::{Attachment, SessionRecord};
use allstop_core::{CallId, MessageId, TurnNumber};
use allstop_scope::{Scope, instant_after};
use allstop_session::{
    AnswerResult, FollowUp, MessageHandle, MessageOutcome, NewMessage, Session, SessionEvent,
    SessionEventKind, Subscription,
};
use allstop_task::{LiveTextWriter, TaskMessage};
use allstop_tools::{BackgroundWork, PermissionAnswer};
use tokio::time::{Instant, sleep_until};

use super::permission_questions::{PermissionReply, replies_in, text_for_model};
use super::question_message::TurnQuestions;
use super::server_forms::TaskForms;

/// Id and name of the artifact that contains the answer.
pub(super) const ANSWER: &str = "answer";

/// Time from the first open question to the message to the client. The parallel calls of a step ask at the same time, but
/// one after another.
const QUESTIONS_WAIT: Duration = Duration::from_millis(50);

/// The turn of one task. The subscription to the session and the client with forms keep questions open.
#[derive(Debug)]
pub(super) struct TaskTurn {
    pub(super) session: Session,
    pub(super) sent: MessageHandle,
    events: Subscription,
    /// False after the last event, or after an error of the log. From then on, only the outcome is awaited.
    has_events: bool,
    /// Number of the turn, once the turn has begun.
    turn: Option<TurnNumber>,
    is_begin_reported: bool,
    outcome: Option<Arc<MessageOutcome>>,
    /// Tool calls of the turn. A permission question of a sub-agent lists the calls that lead to the sub-agent, and the
    /// first of them is one of these calls.
    calls: HashSet<CallId>,
    /// True while clients may see the text of the running step: no guardrail has to check the text first, and no piece
    /// of the text is missing.
    shows_text: bool,
    background_max: Duration,
    background_until: Option<Instant>,
    /// Message with the text of a client that has denied a call. The running turn takes the message before its next
    /// step.
    pub(super) steered: Option<MessageHandle>,
    /// Permission questions that the client of the task was asked last. Its answer counts for no other question.
    asked: Vec<QuestionId>,
    forms: TaskForms,
    /// Time at which the client is asked the open questions.
    asks_at: Option<Instant>,
}

/// Next event that the execution of the task must handle.
#[derive(Debug)]
pub(super) enum TurnProgress {
    /// The turn has begun.
    Began,
    /// The turn has ended. Its background work may still run.
    TurnEnded(Arc<MessageOutcome>),
    /// The turn, or its sub-agents, wait for the answer to this message.
    Asked(Box<TaskMessage>),
    /// The turn and its attached background work have ended.
    Done,
    /// The time limit of the wait for background work has passed.
    StillRunning(Vec<Arc<BackgroundWork>>),
    /// The execution is being stopped.
    Stopped,
}

impl TaskTurn {
    pub(super) fn new(
        session: Session,
        events: Subscription,
        sent: MessageHandle,
        background_max: Duration,
    ) -> Self {
        Self {
            turn: None,
            forms: TaskForms::of(&session),
            session,
            sent,
            events,
            has_events: true,
            is_begin_reported: false,
            outcome: None,
            calls: HashSet::new(),
            shows_text: false,
            background_max,
            background_until: None,
            steered: None,
            asked: Vec::new(),
            asks_at: None,
        }
    }

    pub(super) fn id(&self) -> &MessageId {
        &self.sent.id
    }

    /// True after `TurnEnded` was reported.
    pub(super) fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    /// Waits for the next progress. Reports each progress once, except `Asked`, `Done` and `StillRunning`. Meanwhile
    /// writes the text of the running step.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn progress(
        &mut self,
        scope: &Scope,
        live_text: &LiveTextWriter,
    ) -> TurnProgress {
        loop {
            if let Some(progress) = self.progress_now() {
                return progress;
            }
            let has_outcome = self.outcome.is_some();
            let until = self.background_until.unwrap_or_else(Instant::now);
            let asks_at = self.asks_at.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                () = scope.stopped() => return TurnProgress::Stopped,
                event = self.events.next(), if self.has_events => match event {
                    Ok(Some(event)) => self.note(&event, live_text),
                    Ok(None) => self.has_events = false,
                    Err(error) => {
                        tracing::warn!(%error, "the events of a turn cannot be read");
                        self.has_events = false;
                    }
                },
                _ = self.sent.outcome(), if !has_outcome => {}
                () = self.session.background_idle(), if has_outcome => {}
                () = sleep_until(until), if has_outcome => {}
                () = sleep_until(asks_at), if self.asks_at.is_some() => {}
            }
        }
    }

    fn progress_now(&mut self) -> Option<TurnProgress> {
        let ended = self.sent.try_outcome().filter(|_| self.outcome.is_none());
        if let Some(ended) = &ended {
            // The start event of the turn may not be read yet.
            self.turn = self.turn.or(ended.turn);
        }
        if self.turn.is_some() && !self.is_begin_reported {
            self.is_begin_reported = true;
            return Some(TurnProgress::Began);
        }
        if let Some(ended) = ended {
            self.outcome = Some(Arc::clone(&ended));
            self.background_until = Some(instant_after(Instant::now(), self.background_max));
            return Some(TurnProgress::TurnEnded(ended));
        }
        let questions = self.open_questions();
        if questions.is_empty() {
            self.asks_at = None;
        } else {
            let now = Instant::now();
            let asks_at = self.asks_at.get_or_insert(now + QUESTIONS_WAIT);
            if now < *asks_at {
                return None;
            }
            self.asks_at = None;
            let permissions = questions.permissions.iter();
            self.asked = permissions.map(|open| open.id.clone()).collect();
            let message = questions.message(&mut self.forms);
            return Some(TurnProgress::Asked(Box::new(message)));
        }
        self.outcome.as_ref()?;
        let running = self.running_background();
        if running.is_empty() {
            return Some(TurnProgress::Done);
        }
        let until = self.background_until?;
        (Instant::now() >= until).then_some(TurnProgress::StillRunning(running))
    }

    fn note(&mut self, event: &SessionEvent, live_text: &LiveTextWriter) {
        match &event.kind {
            SessionEventKind::Recorded { record, .. } => self.note_record(record),
            SessionEventKind::Live(live) if event.message.as_ref() == Some(self.id()) => {
                self.show(live, live_text);
            }
            SessionEventKind::Missed { .. } => self.shows_text = false,
            _ => {}
        }
    }

    /// Writes a piece of the answer for the clients. Each model call begins a new text, because only the text of the
    /// last call is the answer.
    fn show(&mut self, event: &AgentEvent, live_text: &LiveTextWriter) {
        match event {
            AgentEvent::StepStarted { is_guarded, .. } => {
                self.shows_text = !is_guarded;
                live_text.restart(ANSWER, Some(ANSWER.into()));
            }
            AgentEvent::RetryScheduled { .. } => live_text.restart(ANSWER, Some(ANSWER.into())),
            AgentEvent::TextDelta { text } if self.shows_text => live_text.push(text),
            _ => {}
        }
    }

    fn note_record(&mut self, record: &SessionRecord) {
        match record {
            SessionRecord::TurnStarted { turn, message, .. }
                if message.as_ref() == Some(&self.sent.id) =>
            {
                self.turn = Some(*turn);
            }
            SessionRecord::CallStarted { turn, call, .. } if Some(*turn) == self.turn => {
                self.calls.insert(call.id.clone());
            }
            _ => {}
        }
    }

    /// Attached background work of the turn. The task waits for this work.
    pub(super) fn running_background(&self) -> Vec<Arc<BackgroundWork>> {
        let mut works = self.session.background_of(self.id());
        works.retain(|work| work.attachment() == Attachment::Attached);
        works
    }

    /// Returns the questions of the turn and its sub-agents.
    fn open_questions(&self) -> TurnQuestions {
        let mut questions = TurnQuestions {
            permissions: self.session.questions(),
            of_servers: self.session.server_questions(),
        };
        // This is checked after the questions are read. If the check came first, this turn could end in between, and a
        // question of the next turn would count as a question of this turn.
        let is_running = self.turn.is_some() && self.sent.try_outcome().is_none();
        let is_own = |agents: &[CallId]| match agents.first() {
            Some(call) => self.calls.contains(call),
            None => is_running,
        };
        questions.permissions.retain(|open| is_own(&open.agents));
        questions.of_servers.retain(|open| is_own(&open.agents));
        questions
    }

    fn is_open(&self, question: &QuestionId) -> bool {
        let questions = self.session.questions();
        questions.iter().any(|open| open.id == *question)
    }

    /// Sends the client's answers to the questions that the client was asked. Has no effect on a question that is already
    /// closed. The client is asked the questions without an answer again.
    pub(super) fn answer(&mut self, message: &TaskMessage) {
        let mut asked = std::mem::take(&mut self.asked);
        // A text of the client answers all permission questions that it was asked, also those that are closed.
        let is_alone = asked.is_empty();
        asked.retain(|asked| self.is_open(asked));
        let replies = replies_in(message, &asked);
        let fills_in = self.forms.answer(message, &self.session, is_alone);
        if replies.is_empty() && !fills_in {
            return;
        }
        // The task works again, so `Began` is reported again.
        self.is_begin_reported = false;
        // The text is sent before the answers, so that the turn takes the text before its next step. If the turn has
        // ended, the text is not sent, because it would start a new turn.
        if let Some(text) = text_for_model(&replies)
            && self.outcome.is_none()
        {
            let message = NewMessage::from(&*text).policy(FollowUp::Steer);
            self.steered = self.session.send(message).ok().or(self.steered.take());
        }
        for (question, reply) in replies {
            let permission = match reply {
                PermissionReply::Allow => PermissionAnswer::AllowOnce,
                PermissionReply::Deny | PermissionReply::DenyWith(_) => PermissionAnswer::deny(),
            };
            match self.session.answer(&question, permission) {
                AnswerResult::Taken => {}
                AnswerResult::TooLate | AnswerResult::NotFound => {
                    tracing::debug!(%question, "an answer came too late");
                }
            }
        }
    }
}
