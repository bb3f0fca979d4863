//! The handle of a session.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::ids::{BackgroundId, QuestionId};
use allstop_core::turn::Conversation;
use allstop_core::{CallId, Cause, CauseKind, Receipt, SessionId, TurnNumber};
use allstop_log::{SessionError, Version, read_session_end};
use allstop_tools::{Answer, BackgroundHost as _, BackgroundWork, NotPromotable};
use tokio::sync::oneshot;

use crate::command::{Command, Detach, DetachError, Detached, UndoError};
use crate::compaction::{CompactError, Compacted};
use crate::desk::NotAdmitted;
use crate::events::{LiveEvents, OpenQuestion, SessionEventKind, Subscription};
use crate::follow_up::FollowUp;
use crate::found::FoundWork;
use crate::message::{MessageOutcome, NewMessage, SendError, Sent};
use crate::questions::Answered;
use crate::shared::{Inner, Shared};
use crate::stopping::{StopTarget, Stopping};
use crate::wait::Waited;

/// The usual limit of [`Session::send_and_wait`].
pub const WAIT_DEFAULT: Duration = Duration::from_mins(1);

/// A cheap handle of one session. Clones are the same session; dropping them stops nothing, and the session's owner
/// ends when it sleeps or is closed.
#[derive(Debug, Clone)]
pub struct Session {
    pub(crate) shared: Arc<Shared>,
}

impl Session {
    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.shared.id
    }

    /// Sends a message. When this returns, the message has its place: a stop of its turn covers it even if the turn has
    /// not begun.
    ///
    /// Messages that wait are in memory only: a crash loses them, as it rolls back the turn that runs.
    ///
    /// # Errors
    /// If it was not taken: then nothing was changed.
    pub fn send(&self, message: impl Into<NewMessage>) -> Result<Sent, SendError> {
        self.shared.send(message.into())
    }

    /// Sends a message for the running turn, which takes it before its next step. Where no turn runs it is a message
    /// like any other.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn steer(&self, message: impl Into<NewMessage>) -> Result<Sent, SendError> {
        self.send(message.into().policy(FollowUp::Steer))
    }

    /// Sends a message and waits until its own turn has ended *and* no attached background work of the session runs,
    /// that of earlier turns included. Messages that wait don't count. When the limit ([`WAIT_DEFAULT`] is usual) is
    /// over first, the answer says so and what still runs; nothing is stopped.
    ///
    /// # Errors
    /// If the message was not taken.
    ///
    /// # Cancel safety
    /// Cancel safe once the message is sent, which happens at the first poll: dropping it stops nothing.
    pub async fn send_and_wait(
        &self,
        message: impl Into<NewMessage>,
        limit: Duration,
    ) -> Result<Waited, SendError> {
        let sent = self.send(message)?;
        Ok(self.shared.wait(sent, limit).await)
    }

    /// The account of a message at this moment, for a process that has to end before its outcome comes. `stopping` is
    /// the stop that was asked for, if any was.
    ///
    /// A turn whose decision fell for the commit is never called stopped: until its write is confirmed it is an error of
    /// kind `store`, which says that the ending is not known yet.
    pub fn outcome_now(&self, sent: &Sent, stopping: Option<&Stopping>) -> Arc<MessageOutcome> {
        match sent.try_outcome() {
            Some(outcome) => outcome,
            None => Arc::new(MessageOutcome::not_ended(sent, stopping)),
        }
    }

    /// Stops what the target names. When this returns, nothing of it starts any more; the receipt is to be awaited.
    ///
    /// A target that has ended answers `already_ended`, one that never was `not_found`: both with no items.
    pub fn stop(&self, target: &StopTarget, cause: Cause) -> Stopping {
        self.shared.stop(target, cause)
    }

    /// Stops one call of the running turn, or of one of its sub-agents, as receipts name it. Its siblings and the turn go
    /// on, and the model gets a result that says so.
    pub fn cancel_call(&self, call: &CallId, cause: Cause) -> Stopping {
        self.shared.stop(&StopTarget::Call(call.clone()), cause)
    }

    /// Dry run of a stop: what it would find now.
    pub fn preview(&self, target: &StopTarget) -> Receipt {
        self.shared.preview(target, Cause::new(CauseKind::User))
    }

    /// Policy for a message that arrives while a turn runs.
    pub fn policy(&self) -> FollowUp {
        self.shared.inner.lock().policy
    }

    /// The same, from the next message on.
    pub fn set_policy(&self, policy: FollowUp) {
        self.shared.inner.lock().policy = policy;
    }

    /// Background work: what runs, and what has ended lately.
    pub fn background(&self) -> Vec<Arc<BackgroundWork>> {
        let background = self.shared.background();
        background.map_or_else(Vec::new, |background| background.works())
    }

    /// Background work that was let go by this process, and runs on: also where the answer of that detach is not there
    /// yet.
    pub fn let_go(&self) -> Vec<FoundWork> {
        let works = self.background().into_iter();
        let let_go = works.filter(|work| work.is_let_go());
        let_go.map(|work| FoundWork::running(&work, true)).collect()
    }

    /// Background work that runs without this process: it was detached, here or by an earlier process, or nobody has
    /// ended it. As it was when somebody last looked. [`StopTarget::Background`] stops it, too.
    pub fn left(&self) -> Vec<FoundWork> {
        self.shared.left()
    }

    /// The same, looked at now, by pid and start time, on a thread of its own.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn look_for_left(&self) -> Vec<FoundWork> {
        self.shared.look_for_left(&self.shared.host.scope).await
    }

    /// Whether anything of the session runs beside its turn: background work, or a hook of the session itself.
    pub fn works_beside_turn(&self) -> bool {
        let awake = self.shared.inner.lock().awake.clone();
        let hooks = awake.is_some_and(|awake| awake.hooks.is_some());
        hooks || self.background().iter().any(|work| work.is_running())
    }

    /// Waits until no attached background work runs, that of earlier turns included.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping it stops nothing.
    pub async fn background_idle(&self) {
        self.shared.background_idle().await;
    }

    /// Asks a running call to go on in the background: its turn goes on with the answer that it does.
    ///
    /// # Errors
    /// If no such call runs, or its tool does not know how.
    pub fn promote(&self, call: &CallId) -> Result<(), NotPromotable> {
        let running = self.shared.inner.lock().desk.running().cloned();
        running.ok_or(NotPromotable)?.controls.promote(call)
    }

    /// The calls of the running turn that run.
    pub fn running_calls(&self) -> Vec<CallId> {
        let running = self.shared.inner.lock().desk.running().cloned();
        running.map_or_else(Vec::new, |slot| slot.controls.running_calls())
    }

    /// Whether a turn runs or waits.
    pub fn is_busy(&self) -> bool {
        !self.shared.inner.lock().desk.is_idle()
    }

    /// Detaches one piece of background work: it outlives the session and this process, and is named wherever idle is
    /// reported. The log says so first, so it waits for the running turn, which is writing there.
    ///
    /// # Errors
    /// If it does not run, has no keeper, or the store failed: then it was not detached.
    ///
    /// # Cancel safety
    /// Cancel safe: the owner does it, whoever waits.
    pub async fn detach(&self, work: &BackgroundId) -> Result<(), DetachError> {
        let mut detached = self.ask_to_detach(Detach::One(work.clone())).await?;
        let detached = detached.pop().ok_or(DetachError::NotRunning)?;
        detached.refused.map_or(Ok(()), Err)
    }

    /// Detaches all background work that runs, with one append. The answer names each piece, and why one still belongs
    /// to the session.
    ///
    /// # Errors
    /// If the store failed: then nothing was detached.
    ///
    /// # Cancel safety
    /// Cancel safe: the owner does it, whoever waits.
    pub async fn detach_background(&self) -> Result<Vec<Detached>, DetachError> {
        self.ask_to_detach(Detach::All).await
    }

    async fn ask_to_detach(&self, what: Detach) -> Result<Vec<Detached>, DetachError> {
        let (tx, rx) = oneshot::channel();
        self.shared.command(Command::Detach(what, tx))?;
        rx.await.unwrap_or(Err(NotAdmitted::Closed.into()))
    }

    /// Watches the session: first the permission questions that wait for an answer, then every record from number `from`
    /// on (`None`: from now on), each once and in order, and the live events beside them.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn subscribe(&self, from: Option<Version>) -> Subscription {
        // First the live events, then the end of the log: what comes between is in both, and given out once.
        let live = self.shared.hub.subscribe();
        let until = self.shared.inner.lock().known.version;
        let after = from.map_or(until, |from| Version(from.0.saturating_sub(1)));
        let log = Arc::clone(&self.shared.host.log);
        let open = self.shared.questions.open();
        let open = self
            .shared
            .hub
            .events(open.into_iter().map(SessionEventKind::PermissionAsked));
        Subscription::new(self.id().clone(), log, live, after, until, open)
    }

    /// Watches what is for eyes alone: deltas, tools asked for and their output. It reads no log, so it never waits for
    /// a store.
    pub fn watch(&self) -> LiveEvents {
        LiveEvents::new(self.shared.hub.subscribe())
    }

    /// The committed conversation.
    ///
    /// # Errors
    /// If the log cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn history(&self) -> Result<Arc<Conversation>, SessionError> {
        let awake = self.shared.inner.lock().awake.clone();
        if let Some(conversation) = awake.and_then(|awake| awake.conversation) {
            return Ok(conversation);
        }
        let (state, _) = read_session_end(&*self.shared.host.log, self.id()).await?;
        Ok(Arc::clone(state.conversation()))
    }

    /// Takes the last turn of the conversation back. What its calls did in the world stays done.
    ///
    /// # Errors
    /// If a turn runs or messages wait, there is none, or the store failed.
    ///
    /// # Cancel safety
    /// Cancel safe: the owner does it, whoever waits.
    pub async fn undo(&self) -> Result<TurnNumber, UndoError> {
        let (tx, rx) = oneshot::channel();
        let is_idle = |inner: &Inner| inner.desk.is_idle();
        if !self.shared.command_if(Command::Undo(tx), is_idle)? {
            return Err(UndoError::Busy);
        }
        rx.await.unwrap_or(Err(NotAdmitted::Closed.into()))
    }

    /// Replaces the oldest turns by a summary that the model writes. It waits for the running turn.
    ///
    /// # Errors
    /// If there is too little to compact, the model gave no summary, a stop was first, or the store failed: then the
    /// conversation is as it was.
    ///
    /// # Cancel safety
    /// Cancel safe: the owner does it, whoever waits.
    pub async fn compact(&self) -> Result<Compacted, CompactError> {
        let (tx, rx) = oneshot::channel();
        self.shared.command(Command::Compact(tx))?;
        rx.await.unwrap_or(Err(NotAdmitted::Closed.into()))
    }

    /// The permission questions that wait for an answer.
    pub fn questions(&self) -> Vec<OpenQuestion> {
        self.shared.questions.open()
    }

    /// Answers a permission question. The first answer counts.
    pub fn answer(&self, question: &QuestionId, answer: Answer) -> Answered {
        self.shared.questions.answer(question, answer)
    }

    /// Stops everything of the session and waits until its owner has written what became of it. The session can be
    /// resumed afterwards. Closing twice is closing once.
    ///
    /// # Cancel safety
    /// Dropping it leaves the session closing.
    pub async fn close(&self) -> Arc<Receipt> {
        let cause = Cause::new(CauseKind::Shutdown).detail("the session was closed");
        let stopping = self.stop(&StopTarget::Session, cause);
        let receipt = stopping.receipt().await;
        self.shared.ended.wait().await;
        receipt
    }
}
