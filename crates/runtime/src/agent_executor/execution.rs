//! One execution of a task: begins or continues the turn of the session that answers the task, follows the turn, and
//! writes the events of the task.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_core::turn::LostTurn;
use allstop_core::{Cause, CauseKind};
use allstop_scope::{Ending, Registration, WorkSpec};
use allstop_session::{FollowUp, MessageOutcome, NewMessage};
use allstop_task::model::{Artifact, MessageSender, StoppedWork, TaskState};
use allstop_task::{
    ExecutionCx, ExecutionEnded, ExecutorError, ExecutorReturn, Task, TaskEvent, TaskMessage,
};
use allstop_tools::BackgroundWork;
use futures::FutureExt as _;
use tokio::sync::oneshot;

use super::AgentExecutorInner;
use super::logged_turn::{LoggedTurn, end_of_earlier_process, events_of_answer};
use super::message_text::{agent_message, text_of};
use super::task_sessions::message_id_of;
use super::task_turn::{ANSWER, TaskTurn, TurnProgress};

type ExecutorResult = Result<ExecutorReturn, ExecutorError>;

/// Runs an execution.
pub(super) async fn run(inner: Arc<AgentExecutorInner>, cx: ExecutionCx) -> ExecutorResult {
    let spec = WorkSpec::new(ItemKind::Future, "turn").id("turn");
    // The receipt item of the turn is registered before the turn can begin. The scope refuses the item only if the task
    // is already stopped.
    let Ok(item) = cx.scope.register(spec) else {
        return Ok(ExecutorReturn::Finished);
    };
    let turn = tokio::select! {
        biased;
        // A turn that already waits for an answer is stopped by the canceler (in the parent module), not here.
        () = cx.scope.stopped() => {
            inner.end_resumed(&cx).await;
            None
        }
        turn = inner.begin_or_continue(&cx) => turn?,
    };
    let Some(turn) = turn else {
        item.finish(Ending::Returned);
        return Ok(ExecutorReturn::Finished);
    };
    let execution = TaskExecution {
        inner,
        cx,
        item: Some(item),
        turn: Some(turn),
    };
    execution.follow().await
}

impl AgentExecutorInner {
    /// Begins or continues the turn of the task. `None` if a turn that was committed before a crash has completed the
    /// task.
    async fn begin_or_continue(&self, cx: &ExecutionCx) -> Result<Option<TaskTurn>, ExecutorError> {
        if let Some(mut turn) = self.waiting.take(&cx.task.id) {
            turn.answer(&cx.message);
            return Ok(Some(turn));
        }
        // No turn waits, although the message is a follow-up: the message answers a question, and a crash
        // has ended the turn that asked it.
        if (cx.is_resumed || is_follow_up(&cx.task)) && !self.never_began(cx).await? {
            return Ok(None);
        }
        let mut message = NewMessage::from(text_of(&cx.message))
            .id(message_id_of(&cx.task.id))
            .policy(FollowUp::Enqueue);
        message.trace.clone_from(&cx.trace);
        let sent = self.sessions.send(&cx.task.context_id, message).await;
        let (session, events, sent) = sent?;
        self.tasks.put(cx.task.id.clone(), &session);
        let max = self.options.background_max;
        let turn = TaskTurn::new(session, events, sent, max);
        Ok(Some(turn))
    }

    /// Ends an execution that was stopped before it has continued the turn of an earlier process.
    async fn end_resumed(&self, cx: &ExecutionCx) {
        let Some(cause) = cx.scope.cause().filter(|_| cx.is_resumed) else {
            return;
        };
        for event in end_of_earlier_process(self.sessions.log(), &cx.task, &cause).await {
            // If this write fails, the task manager ends the task.
            let _ended = cx.events.write(event).await;
        }
    }

    /// Returns true if a crash came before the turn of the task. Completes the task if its turn was committed.
    async fn never_began(&self, cx: &ExecutionCx) -> Result<bool, ExecutorError> {
        let answer = match self.logged_turn(&cx.task).await? {
            LoggedTurn::Committed(answer) => answer,
            LoggedTurn::NotBegun if cx.is_resumed => return Ok(true),
            LoggedTurn::NotBegun => return Err(ExecutorError::of_crash(QUESTION_LOST)),
            LoggedTurn::NotCommitted(calls) => {
                return Err(ExecutorError::of_crash(lost_turn(cx, calls.as_ref())));
            }
        };
        for event in events_of_answer(&cx.task, &answer) {
            if cx.events.write(event).await.is_err() {
                break;
            }
        }
        Ok(false)
    }
}

/// Failure of a task that had only asked a question.
const QUESTION_LOST: &str =
    "the server ended while the turn waited for this answer; send the first message as a new task";

/// Failure of a task whose turn ended together with its process. `calls` are the calls of the turn that may have changed
/// something.
fn lost_turn(cx: &ExecutionCx, calls: Option<&LostTurn>) -> String {
    let calls_text = calls.map_or_else(String::new, |calls| format!("; {calls}"));
    if cx.is_resumed {
        // A task of a cluster has a worker, and the worker's process may still run.
        let lost = match cx.task.worker {
            Some(_) => "its worker was lost",
            None => "the process ended",
        };
        format!(
            "{lost} during the turn; a call that had started may have completed: check before you repeat \
             it{calls_text}"
        )
    } else if calls.is_some() {
        format!(
            "the server ended while the turn waited for this answer; check the calls of the turn before you send the \
             first message as a new task{calls_text}"
        )
    } else {
        QUESTION_LOST.to_owned()
    }
}

/// Returns true if the task has a second message of the client, which is an answer to a question.
fn is_follow_up(task: &Task) -> bool {
    let messages = task.history.iter();
    let of_client = messages.filter(|message| message.role == MessageSender::User);
    of_client.count() > 1
}

/// An execution that follows a turn. If a stop uses force and drops this value, the turn is also stopped.
struct TaskExecution {
    inner: Arc<AgentExecutorInner>,
    cx: ExecutionCx,
    /// Item of the turn in the receipt of the task.
    item: Option<Registration>,
    /// The turn; `None` after it has ended, or after other code has taken over the stop of the turn, or the wait for
    /// the turn.
    turn: Option<TaskTurn>,
}

impl Drop for TaskExecution {
    fn drop(&mut self) {
        drop(self.begin_stop());
    }
}

impl TaskExecution {
    async fn follow(mut self) -> ExecutorResult {
        while let Some(turn) = &mut self.turn {
            let written = match turn.progress(&self.cx.scope, &self.cx.live_text).await {
                TurnProgress::Stopped => return self.stop().await,
                TurnProgress::Asked(message) => return self.wait_for_answer(*message).await,
                TurnProgress::Began => self.write(TaskEvent::state(TaskState::Working)).await,
                TurnProgress::TurnEnded(outcome) => {
                    // The client may have denied a call with a text for the model. The turn has ended and can no longer
                    // take this text.
                    let cause = Cause::new(CauseKind::Parent).detail("its turn has ended");
                    drop(turn.stop_steered(&cause));
                    if outcome.is_completed() {
                        self.write(answer_event(&outcome.output)).await
                    } else {
                        return self.fail(&outcome).await;
                    }
                }
                TurnProgress::Done => return self.complete(None).await,
                TurnProgress::StillRunning(works) => {
                    return self.complete(Some(names_of(&works))).await;
                }
            };
            if written.is_err() {
                return self.stop().await;
            }
        }
        Ok(ExecutorReturn::Finished)
    }

    async fn write(&self, event: TaskEvent) -> Result<(), ExecutionEnded> {
        self.cx.events.write(event).await
    }

    fn finish_item(&mut self) {
        if let Some(item) = self.item.take() {
            item.finish(Ending::Returned);
        }
    }

    async fn complete(mut self, message: Option<String>) -> ExecutorResult {
        self.turn = None;
        self.finish_item();
        // The write fails if the task was stopped at the moment when its turn ended.
        let _ended = self.write(completed(message)).await;
        Ok(ExecutorReturn::Finished)
    }

    /// Ends the task of a turn that ended without an answer. If the turn failed, also stops its background work. If the
    /// turn was stopped in its session, background work outside the extent of this stop continues.
    async fn fail(mut self, outcome: &MessageOutcome) -> ExecutorResult {
        let receipt = outcome.receipt.clone();
        let is_canceled = receipt
            .as_ref()
            .is_some_and(|receipt| is_cancel(receipt.cause()));
        if let Some(turn) = self.turn.as_ref().filter(|_| !is_canceled) {
            let failed = || Cause::new(CauseKind::Failure).detail("its turn has failed");
            let cause = outcome.cause.clone().unwrap_or_else(failed);
            let is_stopped = tokio::select! {
                biased;
                () = self.cx.scope.stopped() => true,
                () = turn.end_background(&cause) => false,
            };
            if is_stopped {
                // The receipt of this stop also lists the background work.
                return self.stop().await;
            }
        }
        let turn = self.turn.take();
        let mut works = turn.map_or_else(Vec::new, |turn| turn.running_background());
        works.retain(|work| !(is_canceled && work.scope().is_stopped()));
        self.finish_item();
        let mut reason = failure_of(outcome);
        if !works.is_empty() {
            reason = format!("{reason}. {}", names_of(&works));
        }
        if let Some(lost) = &outcome.lost {
            reason = format!("{reason}; {lost}");
        }
        let Some(receipt) = receipt else {
            return Err(ExecutorError::new(reason));
        };
        let (message, error) = if is_canceled && outcome.error.is_none() {
            (Some(Arc::new(agent_message(reason))), None)
        } else {
            (None, Some(reason.into()))
        };
        let stopped = StoppedWork {
            receipt,
            message,
            error,
        };
        let _ended = self.write(TaskEvent::Stopped(stopped)).await;
        Ok(ExecutorReturn::Finished)
    }

    /// Ends the execution with questions. The turn waits for the next message of the task.
    async fn wait_for_answer(mut self, message: TaskMessage) -> ExecutorResult {
        let id = self.cx.task.id.clone();
        // The turn is stored before the event is written, because the answer may follow at once.
        if let Some(turn) = self.turn.take() {
            let sent = turn.sent.clone();
            self.inner.waiting.put(id.clone(), turn);
            // The turn may be stopped, or its question answered, in the session without this task. The waker then calls
            // the executor again.
            let waker = self.cx.waker.clone();
            waker.wake_after(async move { drop(sent.outcome().await) });
        }
        let event = TaskEvent::status(TaskState::InputRequired, message);
        let written = self.write(event).await;
        if written.is_err() || self.is_stopped_with_its_task() {
            self.turn = self.inner.waiting.take(&id);
            if self.turn.is_some() {
                return self.stop().await;
            }
        }
        self.finish_item();
        Ok(ExecutorReturn::Finished)
    }

    /// True if the task is being stopped. A stop with the cause `parent` does not count: with this cause, the task
    /// manager only stops the rest of an execution that has returned a question. The turn then waits for an answer, or
    /// for the canceler, which adds the turn to the receipt of the task's stop.
    fn is_stopped_with_its_task(&self) -> bool {
        let cause = self.cx.scope.cause();
        cause.is_some_and(|cause| cause.kind != CauseKind::Parent)
    }

    /// Begins the stop of the turn, and writes the end of the task. The receipt item of the turn ends when the receipt
    /// of the session is complete and the end is written, even if this execution is dropped meanwhile.
    fn begin_stop(&mut self) -> Option<oneshot::Receiver<()>> {
        let (turn, item) = (self.turn.take()?, self.item.take()?);
        item.acknowledge("following the turn");
        let (tx, stopped) = oneshot::channel();
        let (cause, receipts) = (self.stop_cause(), self.cx.receipts.clone());
        let events = self.cx.events.clone();
        let stopping = async move {
            let is_answered = turn.has_ended();
            let is_quiet = turn.stop(&cause, &receipts).await;
            for event in turn.end_of_stopped(&cause, is_answered).await {
                // A full queue must not delay the receipt. The task then ends without a message.
                let _full = events.write(event).now_or_never();
            }
            item.finish(if is_quiet {
                Ending::Returned
            } else {
                Ending::WatcherGone
            });
            // The executor may have been dropped at the end of its grace period.
            let _dropped = tx.send(());
        };
        // Runs as an engine of the scope, which a stop never drops. The receipt item of the turn must not end before
        // the turn, even if the executor is dropped.
        drop(self.cx.scope.spawn_engine(stopping));
        Some(stopped)
    }

    fn stop_cause(&self) -> Cause {
        let cause = self.cx.scope.cause();
        cause.unwrap_or_else(|| Cause::new(CauseKind::Failure).detail("its task has ended"))
    }

    /// Stops the turn, which ends the task with the receipt of the session.
    async fn stop(mut self) -> ExecutorResult {
        if let Some(stopped) = self.begin_stop() {
            // An error means that the engine was dropped, which ends the execution too.
            drop(stopped.await);
        }
        Ok(ExecutorReturn::Finished)
    }
}

pub(super) fn answer_event(text: &Arc<str>) -> TaskEvent {
    TaskEvent::artifact(Artifact {
        name: Some(ANSWER.into()),
        ..Artifact::text(ANSWER, Arc::clone(text))
    })
}

pub(super) fn completed(message: Option<String>) -> TaskEvent {
    match message {
        Some(text) => TaskEvent::status(TaskState::Completed, agent_message(text)),
        None => TaskEvent::state(TaskState::Completed),
    }
}

/// Describes the running work, such as `Still running: sleep 600 (bg_1), make (bg_2)`.
fn names_of(works: &[Arc<BackgroundWork>]) -> String {
    let names = works
        .iter()
        .map(|work| format!("{} ({})", work.name, work.id));
    let names: Vec<String> = names.collect();
    format!("Still running: {}", names.join(", "))
}

/// True if a stop with this cause cancels a task.
fn is_cancel(cause: &Cause) -> bool {
    TaskState::after_stop(cause.kind) == TaskState::Canceled
}

/// Reason why a turn has no answer.
fn failure_of(outcome: &MessageOutcome) -> String {
    match (&outcome.error, &outcome.cause) {
        (Some(error), _) => error.to_string(),
        (None, Some(cause)) => format!("the turn ended: {}, {cause}", outcome.stop_reason),
        (None, None) => format!("the turn ended: {}", outcome.stop_reason),
    }
}
