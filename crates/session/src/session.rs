//! Handle to a session.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::ids::{BackgroundId, QuestionId};
use allstop_core::turn::Conversation;
use allstop_core::{CallId, Cause, CauseKind, Extent, MessageId, Receipt, SessionId, TurnNumber};
use allstop_log::session::stream_of;
use allstop_log::{LoggedAnswer, SessionError, Version, committed_answer, read_session_end};
use allstop_tools::{BackgroundHost, BackgroundWork, FormAnswer, NotPromotable, PermissionAnswer};
use tokio::sync::oneshot;

use crate::answer_result::AnswerResult;
use crate::command::{
    BackgroundDetachError, BackgroundStartError, DetachResult, DetachTarget, OwnerCommand,
    ReleaseError, UndoError,
};
use crate::compaction::{CompactError, CompactionResult};
use crate::events::OpenServerQuestion;
use crate::events::{LiveEvents, OpenQuestion, SessionEventKind, Subscription};
use crate::follow_up::FollowUp;
use crate::inner::{LockedState, SessionInner};
use crate::message::{MessageHandle, MessageOutcome, NewMessage, SendError};
use crate::orphan_scan::OrphanedWork;
use crate::queue::MessageRefused;
use crate::server_questions::FormClient;
use crate::side_question::SideQuestionError;
use crate::stop_handle::SessionStop;
use crate::stop_plan::StopTarget;
use crate::wait::WaitResult;

/// Usual limit for [`Session::send_and_wait`].
pub const WAIT_DEFAULT: Duration = Duration::from_mins(1);

/// A cheap handle to one session. Clones refer to the same session. Dropping a handle stops nothing: the session's
/// owner ends when the session sleeps or is closed.
#[derive(Debug, Clone)]
pub struct Session {
    pub(crate) inner: Arc<SessionInner>,
}

impl Session {
    /// Id of the session.
    pub fn id(&self) -> &SessionId {
        &self.inner.id
    }

    /// Display name of the session's model.
    pub fn model_name(&self) -> Option<&str> {
        self.inner.host.source.model_name()
    }

    /// Attaches a part, a value that a server keeps with the session until the session has ended. Replaces an attached
    /// part of this type.
    pub fn set_part<T: Any + Send + Sync>(&self, part: Arc<T>) {
        self.inner.parts.set(part);
    }

    /// The attached part of a type.
    pub fn part<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.inner.parts.get()
    }

    /// Detaches the part of a type.
    pub fn take_part<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.inner.parts.take()
    }

    /// Sends a message. On return the message has its place in the queue: a stop of the message's turn covers the
    /// message even before the turn begins.
    ///
    /// Waiting messages are kept in memory only. A crash loses them and rolls back the running turn.
    ///
    /// # Errors
    /// Returns an error if the message was refused; nothing was changed.
    pub fn send(&self, message: impl Into<NewMessage>) -> Result<MessageHandle, SendError> {
        self.inner.send(message.into())
    }

    /// Sends a message to the running turn, which takes it before its next step. If no turn runs, sends a normal
    /// message.
    ///
    /// # Errors
    /// Returns the errors of [`Session::send`].
    pub fn steer(&self, message: impl Into<NewMessage>) -> Result<MessageHandle, SendError> {
        self.send(message.into().policy(FollowUp::Steer))
    }

    /// Sends a message and waits until its turn has ended *and* no attached background work of the session runs,
    /// including work of earlier turns. Ignores other waiting messages. If the limit (usually [`WAIT_DEFAULT`]) passes
    /// first, the result is marked `timed_out` and lists the running work; nothing is stopped.
    ///
    /// # Errors
    /// Returns an error if the message was refused.
    ///
    /// # Cancel safety
    /// Cancel safe after the first poll, which sends the message: dropping the future stops nothing.
    pub async fn send_and_wait(
        &self,
        message: impl Into<NewMessage>,
        limit: Duration,
    ) -> Result<WaitResult, SendError> {
        let sent = self.send(message)?;
        Ok(self.inner.wait(sent, limit).await)
    }

    /// Current outcome of a message, as far as it is known, for a process that must exit before the final outcome
    /// arrives. `stopping` is the stop of the message, if any.
    ///
    /// A turn that has decided to commit is never reported as stopped. Until the write of the commit is confirmed, the
    /// outcome is an error of kind `store`, with the message that the ending is not known yet.
    pub fn outcome_now(
        &self,
        sent: &MessageHandle,
        stopping: Option<&SessionStop>,
    ) -> Arc<MessageOutcome> {
        match sent.try_outcome() {
            Some(outcome) => outcome,
            None => Arc::new(MessageOutcome::provisional(sent, stopping)),
        }
    }

    /// Outcome of the turn that ended last in this process, including a turn whose hooks still run. `None` before the end
    /// of the first turn.
    pub fn last_outcome(&self) -> Option<Arc<MessageOutcome>> {
        let state = self.inner.state.lock();
        let mut turns = state.queue.running().into_iter().chain(&state.last);
        turns.find_map(|turn| turn.state.known_outcome())
    }

    /// Stops a target. After this function has returned, no further work of the target starts. Await the receipt for
    /// the result.
    ///
    /// If the target has already ended, the receipt reports `already_ended`; if the target is unknown, the receipt
    /// reports `not_found`. Such a receipt has no items.
    pub fn stop(&self, target: &StopTarget, cause: impl Into<Cause>) -> SessionStop {
        self.inner.stop(target, cause.into())
    }

    /// Stops one call of the running turn, or of one of its sub-agents, with cause `user`. `call` is the name of the call
    /// in receipts. The turn and its other calls continue; the model receives a result that reports the stop.
    ///
    /// True if this request has stopped the call; false if the call is unknown, has ended or is stopped already. For the
    /// receipt, stop the target [`StopTarget::Call`].
    pub fn cancel_call(&self, call: &CallId) -> bool {
        let target = StopTarget::Call(call.clone());
        self.inner.request_stop(&target, CauseKind::User.into()).1
    }

    /// Dry run of a stop: lists the work that the stop would find now.
    pub fn preview(&self, target: &StopTarget) -> Receipt {
        self.inner.preview(target, Cause::new(CauseKind::User))
    }

    /// Policy for a message that arrives while a turn runs.
    pub fn policy(&self) -> FollowUp {
        self.inner.state.lock().policy
    }

    /// Sets the policy for later messages that arrive while a turn runs.
    pub fn set_policy(&self, policy: FollowUp) {
        self.inner.state.lock().policy = policy;
    }

    /// Returns the running background work, and recently ended work.
    pub fn background(&self) -> Vec<Arc<BackgroundWork>> {
        let background = self.inner.background();
        background.map_or_else(Vec::new, |background| background.works())
    }

    /// Returns the owner of the session's background work, for work that no turn starts. Opens the session if needed, after
    /// the running turn.
    ///
    /// # Errors
    /// Returns an error if the session is closed or cannot be opened.
    ///
    /// # Cancel safety
    /// Cancel safe: the session is opened even if no caller waits.
    pub async fn background_host(&self) -> Result<Arc<dyn BackgroundHost>, BackgroundStartError> {
        if let Some(background) = self.inner.background() {
            return Ok(background);
        }
        let (tx, rx) = oneshot::channel();
        self.inner.command(OwnerCommand::Open(tx))?;
        let opened = rx.await.map_err(|_| MessageRefused::Closed)?;
        opened.map_err(BackgroundStartError::NotOpen)?;
        let background = self.inner.background().ok_or(MessageRefused::Closed)?;
        Ok(background)
    }

    /// Returns the running background work that the turn of a message has started in this process.
    pub fn background_of(&self, message: &MessageId) -> Vec<Arc<BackgroundWork>> {
        let awake = self.inner.state.lock().awake.clone();
        let Some(awake) = awake else {
            return Vec::new();
        };
        let (Some(own), Some(background)) = (awake.background_of(message), &awake.background)
        else {
            return Vec::new();
        };
        let mut works = background.running();
        works.retain(|work| own.find_unit(work.id.as_str()).is_some());
        works
    }

    /// Receipt of the stop that covers the background work of a message, limited to that work. `None` if no stop covers
    /// this work.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn background_account(&self, message: &MessageId) -> Option<Arc<Receipt>> {
        let awake = self.inner.state.lock().awake.clone()?;
        let account = awake
            .background_of(message)?
            .account(Extent::Subtree, Vec::new())?;
        Some(account.receipt().await)
    }

    /// Background work that this process has detached and that still runs, even before the call of [`Session::detach`]
    /// has returned.
    pub fn detached_work(&self) -> Vec<OrphanedWork> {
        let works = self.background().into_iter();
        let detached = works.filter(|work| work.is_detached());
        detached
            .map(|work| OrphanedWork::running(&work, true))
            .collect()
    }

    /// True if the store has not accepted the receipt of a stop. While this process has the session open, the process
    /// keeps the receipt, and writes the receipt with the next records.
    pub fn has_unstored_receipt(&self) -> bool {
        let state = self.inner.state.lock();
        state.has_unstored_receipt || state.stops.has_unrecorded()
    }

    /// Background work that runs without this process, because it was detached or an earlier process left it running.
    /// The list shows the state at the last check. [`StopTarget::Background`] also stops such work.
    pub fn orphaned_work(&self) -> Vec<OrphanedWork> {
        self.inner.orphaned_work()
    }

    /// Background work that runs without this process. Checks the work by pid and start time on a separate thread.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn check_orphaned_work(&self) -> Vec<OrphanedWork> {
        self.inner.check_orphans(&self.inner.host.scope).await
    }

    /// True if background work or a hook of the session itself runs.
    pub fn has_background_activity(&self) -> bool {
        let awake = self.inner.state.lock().awake.clone();
        let hooks = awake.is_some_and(|awake| awake.hooks.is_some());
        hooks || self.background().iter().any(|work| work.is_running())
    }

    /// Waits until no attached background work runs, including work of earlier turns.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future stops nothing.
    pub async fn background_idle(&self) {
        self.inner.background_idle().await;
    }

    /// Requests that a running call continues in the background. The turn of the call continues with a result that
    /// reports this change.
    ///
    /// # Errors
    /// Returns an error if no such call runs, or if its tool cannot continue in the background.
    pub fn promote(&self, call: &CallId) -> Result<(), NotPromotable> {
        let running = self.inner.state.lock().queue.running().cloned();
        running.ok_or(NotPromotable)?.controls.promote(call)
    }

    /// Running calls of the running turn.
    pub fn running_calls(&self) -> Vec<CallId> {
        let running = self.inner.state.lock().queue.running().cloned();
        running.map_or_else(Vec::new, |queued| queued.controls.running_calls())
    }

    /// True if a turn, or a command that calls the model, runs or waits.
    pub fn is_busy(&self) -> bool {
        !self.inner.state.lock().queue.is_idle()
    }

    /// True if a turn runs or waits. Unlike [`Session::is_busy`], a compaction or a question outside the conversation does not
    /// count.
    pub fn has_turn(&self) -> bool {
        let state = self.inner.state.lock();
        state.queue.all().any(|queued| !queued.is_command())
    }

    /// The last turn that has begun; 0 before the first turn.
    pub fn last_turn(&self) -> TurnNumber {
        let ended = self.inner.state.lock().position.last_turn;
        self.inner.hub.last_turn().unwrap_or(ended)
    }

    /// Releases the session at an idle moment: the session sleeps at once and gives up the lock of its log, so another
    /// process can open it. The next message wakes the session again. A session that sleeps already is released.
    ///
    /// # Errors
    /// Returns an error if a turn runs or waits, or background work runs. The session then keeps its lock.
    ///
    /// # Cancel safety
    /// Cancel safe: the owner releases the session even if no caller waits.
    pub async fn release(&self) -> Result<(), ReleaseError> {
        let (reply, released) = oneshot::channel();
        {
            let mut state = self.inner.state.lock();
            if !state.queue.is_idle() || state.commands.has_model_call() {
                return Err(ReleaseError::Busy);
            }
            if state.awake.is_none() {
                return Ok(());
            }
            state.commands.push(OwnerCommand::Release(reply));
        }
        self.inner.changed.notify_one();
        if released.await.is_err() {
            return Err(if self.is_busy() {
                ReleaseError::Busy
            } else {
                ReleaseError::HasWork
            });
        }
        // A store releases the lock of the session before it answers a later question.
        let _answered_or_failed = self.inner.host.log.lock_owner(&stream_of(self.id())).await;
        Ok(())
    }

    /// True if the session is awake: the owner task exists and holds the lock of the session's log.
    pub fn is_awake(&self) -> bool {
        self.inner.state.lock().awake.is_some()
    }

    /// True if the session accepts no more messages. The session can be resumed once [`Session::close`] has returned.
    pub fn is_closed(&self) -> bool {
        self.inner.state.lock().queue.is_closed()
    }

    /// Detaches one piece of background work. Detached work outlives the session and this process, and idle events list
    /// this work. The log records the detach first, so this call waits for the running turn, which owns the log.
    ///
    /// # Errors
    /// Returns an error if the work does not run, if it has no keeper (the small process that manages a command's
    /// process tree), or if the store failed. The work was then not detached.
    ///
    /// # Cancel safety
    /// Cancel safe: the owner detaches the work even if no caller waits.
    pub async fn detach(&self, work: &BackgroundId) -> Result<(), BackgroundDetachError> {
        let mut detached = self.send_detach(DetachTarget::One(work.clone())).await?;
        let detached = detached.pop().ok_or(BackgroundDetachError::NotRunning)?;
        detached.refused.map_or(Ok(()), Err)
    }

    /// Detaches all running background work with one append. For each piece of work that stays attached, the result
    /// contains the reason.
    ///
    /// # Errors
    /// Returns an error if the store failed; nothing was detached.
    ///
    /// # Cancel safety
    /// Cancel safe: the owner detaches the work even if no caller waits.
    pub async fn detach_background(&self) -> Result<Vec<DetachResult>, BackgroundDetachError> {
        self.send_detach(DetachTarget::All).await
    }

    async fn send_detach(
        &self,
        target: DetachTarget,
    ) -> Result<Vec<DetachResult>, BackgroundDetachError> {
        let (tx, rx) = oneshot::channel();
        self.inner.command(OwnerCommand::Detach(target, tx))?;
        rx.await.unwrap_or(Err(MessageRefused::Closed.into()))
    }

    /// Subscribes to the session. The subscription delivers the open questions first. Then it delivers every
    /// record from number `from` on, exactly once and in order, with the live events between the records. `None`
    /// delivers new records only.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn subscribe(&self, from: Option<Version>) -> Subscription {
        // This function subscribes to the live events before it reads the end of the log. Records in between are in
        // both sources and are delivered once.
        let live = self.inner.hub.subscribe();
        let until = self.inner.state.lock().position.version;
        let after = from.map_or(until, |from| Version(from.0.saturating_sub(1)));
        let log = Arc::clone(&self.inner.host.log);
        let permissions = self.questions().into_iter();
        let permissions = permissions.map(SessionEventKind::PermissionAsked);
        let of_servers = self.server_questions().into_iter();
        let of_servers = of_servers.map(|open| SessionEventKind::ServerAsked(Box::new(open)));
        let open = self.inner.hub.events(permissions.chain(of_servers));
        Subscription::new(self.id().clone(), log, live, after, until, open)
    }

    /// Subscribes to live events: deltas, requested tools and their output. Never reads the log, and never waits for
    /// the log.
    pub fn watch(&self) -> LiveEvents {
        LiveEvents::of_subscriber(self.inner.hub.subscribe())
    }

    /// Like [`Session::watch`], but for an observer, which does not count as a subscriber. An observer keeps no
    /// permission question open, and uses little memory while no event happens.
    pub fn observe(&self) -> LiveEvents {
        LiveEvents::of_observer(self.inner.hub.observe())
    }

    /// The committed conversation.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn history(&self) -> Result<Arc<Conversation>, SessionError> {
        let awake = self.inner.state.lock().awake.clone();
        if let Some(conversation) = awake.and_then(|awake| awake.conversation) {
            return Ok(conversation);
        }
        let (state, _) = read_session_end(&*self.inner.host.log, self.id()).await?;
        Ok(Arc::clone(state.conversation()))
    }

    /// Returns the answer of a message's turn, if the log contains the commit of that turn. Reads the whole log of the
    /// session.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn committed_answer(
        &self,
        message: &MessageId,
    ) -> Result<LoggedAnswer, SessionError> {
        committed_answer(&*self.inner.host.log, self.id(), message).await
    }

    /// Removes the last turn from the conversation. Effects of its calls on the outside world remain.
    ///
    /// # Errors
    /// Returns an error if a turn runs or messages wait, if there is no turn to remove, or if the store failed.
    ///
    /// # Cancel safety
    /// Cancel safe: the owner removes the turn even if no caller waits.
    pub async fn undo(&self) -> Result<TurnNumber, UndoError> {
        let (tx, rx) = oneshot::channel();
        let is_idle = |state: &LockedState| state.queue.is_idle();
        if !self.inner.command_if(OwnerCommand::Undo(tx), is_idle)? {
            return Err(UndoError::Busy);
        }
        rx.await.unwrap_or(Err(MessageRefused::Closed.into()))
    }

    /// Replaces the oldest turns by a summary that the model writes. Waits for the running turn.
    /// [`StopTarget::Turn`] ends the compaction, also while it waits.
    ///
    /// # Errors
    /// Returns an error if another compaction runs or waits, the conversation is too short, the model returned no summary, a stop came first, or the
    /// store failed. The conversation is then unchanged.
    ///
    /// # Cancel safety
    /// Cancel safe: the owner compacts even if no caller waits.
    pub async fn compact(&self) -> Result<CompactionResult, CompactError> {
        let (tx, rx) = oneshot::channel();
        let is_first = |state: &LockedState| !state.commands.has_model_call();
        if !self.inner.command_if(OwnerCommand::Compact(tx), is_first)? {
            return Err(CompactError::Busy);
        }
        rx.await.unwrap_or(Err(MessageRefused::Closed.into()))
    }

    /// Asks the model a question about the conversation, without tools. The conversation does not change. The question is
    /// registered with the call, and waits for the running turn. [`StopTarget::Turn`] ends the question, also while it waits.
    ///
    /// # Errors
    /// Returns an error if another question or a compaction runs or waits, the model returned no answer, a stop came
    /// first, or the store failed.
    ///
    /// # Cancel safety
    /// Cancel safe: the owner asks even if no caller waits.
    pub fn ask_aside(
        &self,
        question: Arc<str>,
    ) -> impl Future<Output = Result<Arc<str>, SideQuestionError>> + Send + use<> {
        let (tx, rx) = oneshot::channel();
        let is_first = |state: &LockedState| !state.commands.has_model_call();
        let command = OwnerCommand::Ask(question, tx);
        let registered = self.inner.command_if(command, is_first);
        async move {
            if !registered? {
                return Err(SideQuestionError::Busy);
            }
            rx.await.unwrap_or(Err(MessageRefused::Closed.into()))
        }
    }

    /// Open permission questions.
    pub fn questions(&self) -> Vec<OpenQuestion> {
        self.inner.questions.open()
    }

    /// Answers a permission question. Only the first answer counts.
    pub fn answer(&self, question: &QuestionId, answer: PermissionAnswer) -> AnswerResult {
        self.inner.questions.answer(question, answer)
    }

    /// Open questions of tools' servers.
    pub fn server_questions(&self) -> Vec<OpenServerQuestion> {
        self.inner.questions.of_servers.open()
    }

    /// Registers a client that answers the questions of tools' servers, until the value is dropped.
    pub fn form_client(&self) -> FormClient {
        self.inner.questions.of_servers.client()
    }

    /// Answers the question of a tool's server. Only the first answer counts.
    pub fn answer_server(&self, question: &QuestionId, answer: FormAnswer) -> AnswerResult {
        self.inner.questions.of_servers.answer(question, answer)
    }

    /// Waits until the owner of a closed session has written the results. The session can be resumed afterwards.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn closed(&self) {
        self.inner.ended.wait().await;
    }

    /// Closes the session and waits until its owner has written the results. The session can be resumed afterwards. If
    /// the store does not answer, the session can be resumed only after the store has answered. A second close joins
    /// the first.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the close.
    pub async fn close(&self) -> Arc<Receipt> {
        let cause = Cause::new(CauseKind::Shutdown).detail("the session was closed");
        let receipt = self.stop(&StopTarget::Session, cause).receipt().await;
        self.closed().await;
        receipt
    }
}
