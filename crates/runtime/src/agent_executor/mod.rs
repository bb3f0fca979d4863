//! Runs agents as the executor of tasks. A task is a piece of work for a client, and a context groups the tasks of one
//! conversation. Each context is a session, and each task is one turn of that session.
//!
//! The id of the session consists of a prefix and the id of the context. The id of the turn's message is the id of the
//! task. The tasks of a context run one after another, in the order of their messages.
//!
//! Invariants:
//! 1. A task has one turn. An execution of the task follows the turn, or the turn waits in [`WaitingTurns`] for an
//!    answer to its permission question, or the turn has ended. Code that takes a turn out of [`WaitingTurns`] must
//!    follow or stop this turn.
//! 2. The answer of a task is the answer of a committed turn, and is written once.
//! 3. A stopped execution stops its turn. The receipt of the task's stop lists the turn as the item `turn`. This item
//!    ends when the session's receipt for the turn is complete, even if the executor is dropped earlier.
//! 4. Clients see the text of a model call while it arrives, unless a guardrail has to check the answer.
//! 5. A stop of a task does not affect work of other tasks of its context.

mod context_conversations;
mod context_sessions;
mod execution;
mod logged_turn;
mod message_text;
mod orphans;
mod permission_questions;
mod question_id;
mod question_message;
mod server_forms;
mod task_sessions;
mod task_turn;
mod turn_stop;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ReceiptItem;
use allstop_core::{Cause, CauseKind, ContextId, Receipt, TaskId};
use allstop_session::Sessions;
use allstop_task::{
    CancelCx, Canceler, Cleanup, CleanupCx, ExecutionCx, Executor, ExecutorError, ExecutorReturn,
    PartReceipts, Task, TaskEvent, TaskParts,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

pub use context_conversations::ContextConversations;
use context_sessions::{ContextSessions, session_id_of};
use logged_turn::{end_of_earlier_process, is_cut_off};
use orphans::OrphanSession;
use task_sessions::{TaskSessions, work_of};
use task_turn::TaskTurn;

/// Options of an [`AgentExecutor`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AgentExecutorOptions {
    /// Maximum time that a task with an answer waits for the attached background work of its turn, that is, the work
    /// that the session waits for. After that time the task ends, and lists the work that still runs.
    pub background_max: Duration,
    /// Maximum number of open sessions. If more are open, an idle session is closed; the next message of its context
    /// opens it again.
    pub sessions_open_max: usize,
    /// True if executors in other processes use the same sessions. A session is then closed after each execution, and
    /// an execution waits for a session that another process has open.
    pub shares_sessions: bool,
}

/// Default of [`AgentExecutorOptions::background_max`]: long enough for a build or a test run.
const BACKGROUND_MAX: Duration = Duration::from_mins(10);

/// Default of [`AgentExecutorOptions::sessions_open_max`]: a sleeping session uses a few kilobytes of memory.
const SESSIONS_OPEN_MAX: usize = 1_024;

impl Default for AgentExecutorOptions {
    fn default() -> Self {
        Self {
            background_max: BACKGROUND_MAX,
            sessions_open_max: SESSIONS_OPEN_MAX,
            shares_sessions: false,
        }
    }
}

impl AgentExecutorOptions {
    /// Sets the maximum time that a task with an answer waits for the background work of its turn.
    #[must_use]
    pub fn background_max(mut self, background_max: Duration) -> Self {
        self.background_max = background_max;
        self
    }

    /// Sets the maximum number of open sessions.
    #[must_use]
    pub fn sessions_open_max(mut self, sessions_open_max: usize) -> Self {
        self.sessions_open_max = sessions_open_max;
        self
    }

    /// Sets if executors in other processes use the same sessions.
    #[must_use]
    pub fn shares_sessions(mut self, shares_sessions: bool) -> Self {
        self.shares_sessions = shares_sessions;
        self
    }
}

/// Executor of tasks that runs agents. Clones refer to the same executor.
///
/// Permission questions end the execution with the task state `input_required`, and the turn waits. The next message of
/// the task answers the questions: `yes` or `allow`, `no` or `deny`. Any other text denies the calls, and the model
/// receives the text as a message. Parts with the id of a question answer only this question. If the process ends while
/// a question is open, the task fails, because the turn was rolled back.
///
/// Questions of MCP servers are asked in the same message. The answer is a part with data, in the form of the protocol:
/// `{"action": "accept", "content": {…}}`.
///
/// After a crash, a task with a committed turn is completed with the answer of this turn. A task without a begun turn
/// starts its turn. Any other interrupted task fails.
#[derive(Debug, Clone)]
pub struct AgentExecutor {
    inner: Arc<AgentExecutorInner>,
}

#[derive(Debug)]
struct AgentExecutorInner {
    sessions: ContextSessions,
    waiting: WaitingTurns,
    tasks: TaskSessions,
    options: AgentExecutorOptions,
}

impl AgentExecutor {
    /// Creates an executor with these sessions. `folder` is the working directory of new sessions.
    ///
    /// Agents that need permissions must ask the subscribers of their session.
    pub fn new(
        sessions: Sessions,
        folder: impl Into<Arc<str>>,
        options: AgentExecutorOptions,
    ) -> Self {
        Self {
            inner: Arc::new(AgentExecutorInner {
                sessions: ContextSessions::new(
                    sessions,
                    folder.into(),
                    options.sessions_open_max,
                    options.shares_sessions,
                ),
                waiting: WaitingTurns::default(),
                tasks: TaskSessions::default(),
                options,
            }),
        }
    }

    /// The callbacks that a [`TaskManager`](allstop_task::TaskManager) needs for each task.
    pub fn parts(&self) -> TaskParts {
        TaskParts::of(self.clone())
            .canceler(self.clone())
            .cleanup(self.clone())
    }
}

impl Executor for AgentExecutor {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        execution::run(Arc::clone(&self.inner), cx).boxed()
    }

    fn check_context(&self, context: &ContextId) -> Result<(), ExecutorError> {
        session_id_of(context).map(drop)
    }

    /// Always true: the execution searches the log of the session for the answer, and runs nothing again.
    fn can_resume(&self, _task: &Task) -> bool {
        true
    }

    /// Always false: another process cannot continue a turn in progress. The shutdown stops the turn, and the task ends
    /// with the receipt.
    fn can_hand_over(&self, _task: &Task) -> bool {
        false
    }

    /// Lists the tool calls and the background work of the task's turn.
    fn preview(&self, task: &TaskId) -> Vec<ReceiptItem> {
        self.inner.tasks.preview(task)
    }

    fn has_left_work(&self) -> bool {
        self.inner.waiting.has_turns() || self.inner.tasks.has_background_work()
    }
}

/// Stops a turn that waits for the answer to its permission question.
impl Canceler for AgentExecutor {
    fn cancel(&self, cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        let inner = Arc::clone(&self.inner);
        async move {
            let events = if let Some(turn) = inner.waiting.take(&cx.task.id) {
                let turn = StoppingTurn {
                    inner: &inner,
                    task: &cx.task.id,
                    turn: Some(turn),
                };
                turn.stop(&cx).await
            } else {
                if !inner.tasks.has(&cx.task.id) {
                    inner.sessions.stop_left_turn(&cx).await;
                }
                if is_cut_off(&cx) {
                    let log = inner.sessions.log();
                    end_of_earlier_process(log, &cx.task, &cx.cause).await
                } else {
                    Vec::new()
                }
            };
            for event in events {
                // If this write fails, the task manager ends the task.
                let _ended = cx.events.write(event).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn preview_orphans(&self, task: Arc<Task>) -> BoxFuture<'static, Vec<ReceiptItem>> {
        let inner = Arc::clone(&self.inner);
        async move { inner.sessions.orphans_of(&task).await }.boxed()
    }

    /// Stops the background work of the task, and processes that an earlier process left running.
    fn stop_orphans(
        &self,
        task: Arc<Task>,
        cause: Cause,
    ) -> BoxFuture<'static, Option<Arc<Receipt>>> {
        let inner = Arc::clone(&self.inner);
        async move {
            let session = match inner.tasks.ended_session(&task.id) {
                Some(session) => session,
                None => match inner.sessions.session_with_orphans(&task).await {
                    OrphanSession::Open(session) => session,
                    OrphanSession::WithoutOrphans => return None,
                    OrphanSession::NotOpened(items) => {
                        return Some(inner.sessions.receipt_of_unopened(&task, cause, items));
                    }
                },
            };
            let stop = session.stop(&work_of(&task.id), cause);
            let receipt = if stop.found_nothing() {
                None
            } else {
                Some(stop.receipt().await)
            };
            if inner.options.shares_sessions {
                inner.sessions.close_unused(&task.context_id).await;
            }
            receipt
        }
        .boxed()
    }
}

/// A waiting turn while the canceler stops it. If the task manager drops the canceler's future, the turn waits again,
/// so that the next stop finds the turn.
struct StoppingTurn<'a> {
    inner: &'a AgentExecutorInner,
    task: &'a TaskId,
    turn: Option<TaskTurn>,
}

impl StoppingTurn<'_> {
    /// Stops the turn. Returns the events that end the task.
    async fn stop(mut self, cx: &CancelCx) -> Vec<TaskEvent> {
        let Some(turn) = &self.turn else {
            return Vec::new();
        };
        turn.stop(&cx.cause, &cx.receipts).await;
        let events = turn.end_of_stopped(&cx.cause, false).await;
        self.turn = None;
        events
    }
}

impl Drop for StoppingTurn<'_> {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.inner.waiting.put(self.task.clone(), turn);
        }
    }
}

/// If a turn waits for an answer and its task has failed meanwhile, stops the turn.
impl Cleanup for AgentExecutor {
    fn clean_up(&self, cx: CleanupCx) -> BoxFuture<'static, ()> {
        let inner = Arc::clone(&self.inner);
        async move {
            let task = cx.task;
            if task.has_ended() {
                inner.tasks.end(&task.id);
                if let Some(turn) = inner.waiting.take(&task.id) {
                    let cause = Cause::new(CauseKind::Failure).detail("its task has ended");
                    turn.stop(&cause, &PartReceipts::default()).await;
                }
            }
            if inner.options.shares_sessions {
                inner.sessions.close_unused(&task.context_id).await;
            }
        }
        .boxed()
    }
}

/// Turns that wait for the answer to a question while no execution of their task runs.
#[derive(Debug, Default)]
struct WaitingTurns(Mutex<HashMap<TaskId, TaskTurn>>);

impl WaitingTurns {
    fn has_turns(&self) -> bool {
        !self.0.lock().is_empty()
    }

    fn put(&self, task: TaskId, turn: TaskTurn) {
        self.0.lock().insert(task, turn);
    }

    fn take(&self, task: &TaskId) -> Option<TaskTurn> {
        self.0.lock().remove(task)
    }
}
