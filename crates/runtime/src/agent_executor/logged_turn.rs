//! The turn of a task as the log of its session contains it, after the process of the turn has ended. A stop reads the
//! log without a lock, because the lock of a lost process expires later than the stop must end.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Cause;
use allstop_core::turn::LostTurn;
use allstop_log::{Log, LoggedAnswer, committed_answer, read_session_end};
use allstop_task::{CancelCx, Canceler, ExecutorError, Task, TaskEvent, TaskState};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::timeout;

use super::context_sessions::{failed, session_id_of};
use super::execution::{answer_event, completed};
use super::message_text::agent_message;
use super::task_sessions::message_id_of;
use super::{AgentExecutorInner, ContextConversations};

/// Maximum wait for the log in a stop. Without the log the task ends without the list of its calls.
const READ_MAX: Duration = Duration::from_secs(1);

/// The turn of a task whose process has ended.
pub(super) enum LoggedTurn {
    /// The turn has not begun.
    NotBegun,
    /// The turn is not in the conversation. Contains the calls that may have changed something.
    NotCommitted(Option<LostTurn>),
    /// The conversation contains this answer.
    Committed(Arc<str>),
}

impl AgentExecutorInner {
    /// Reads the turn of a task from the log of its session.
    pub(super) async fn logged_turn(&self, task: &Task) -> Result<LoggedTurn, ExecutorError> {
        // Opening the session ends the turn of a lost process.
        self.sessions.session(&task.context_id).await?;
        turn_in_log(self.sessions.log(), task).await
    }
}

/// Ends a stopped task that began its turn in a lost process. A process without agents uses it, such as a front end of a
/// cluster.
impl Canceler for ContextConversations {
    fn cancel(&self, cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        let log = Arc::clone(&self.log);
        async move {
            if is_cut_off(&cx) {
                for event in end_of_earlier_process(&*log, &cx.task, &cx.cause).await {
                    // If this write fails, the task manager ends the task.
                    let _ended = cx.events.write(event).await;
                }
            }
            Ok(())
        }
        .boxed()
    }
}

/// True if the turn of the stopped task can have begun in an earlier process.
pub(super) fn is_cut_off(cx: &CancelCx) -> bool {
    cx.is_interrupted || cx.task.status.state == TaskState::InputRequired
}

/// Events that end a stopped task. Its turn began in an earlier process. Without a turn there are no events, so the task
/// manager ends the task.
pub(super) async fn end_of_earlier_process(
    log: &dyn Log,
    task: &Task,
    cause: &Cause,
) -> Vec<TaskEvent> {
    let state = TaskState::after_stop(cause.kind);
    let logged = match timeout(READ_MAX, turn_in_log(log, task)).await {
        Ok(Ok(logged)) => logged,
        Ok(Err(error)) => {
            tracing::warn!(%error, "the calls of a stopped task cannot be read");
            return Vec::new();
        }
        Err(_late) => {
            tracing::warn!("the log of a stopped task does not answer in time");
            return Vec::new();
        }
    };
    match logged {
        LoggedTurn::Committed(answer) => events_of_answer(task, &answer),
        LoggedTurn::NotCommitted(Some(lost)) => {
            vec![TaskEvent::status(state, agent_message(lost.to_string()))]
        }
        LoggedTurn::NotCommitted(None) | LoggedTurn::NotBegun => Vec::new(),
    }
}

/// Reads the turn of a task, whose session may still be open in a lost process.
async fn turn_in_log(log: &dyn Log, task: &Task) -> Result<LoggedTurn, ExecutorError> {
    let id = session_id_of(&task.context_id)?;
    let answer = committed_answer(log, &id, &message_id_of(&task.id)).await;
    Ok(match answer.map_err(|error| failed(&error))? {
        LoggedAnswer::Committed(answer) => LoggedTurn::Committed(answer),
        LoggedAnswer::NotBegun => LoggedTurn::NotBegun,
        LoggedAnswer::NotCommitted(turn) => {
            let (session, _owner) = read_session_end(log, &id)
                .await
                .map_err(|error| failed(&error))?;
            let open = session.lost_calls_of_open_turn();
            let ended = session.conversation().lost.iter().cloned();
            LoggedTurn::NotCommitted(open.into_iter().chain(ended).find(|lost| lost.turn == turn))
        }
    })
}

/// Events that complete a task with the answer of its turn.
pub(super) fn events_of_answer(task: &Task, answer: &Arc<str>) -> Vec<TaskEvent> {
    let is_written = !task.artifacts.is_empty();
    let artifact = (!is_written).then(|| answer_event(answer));
    artifact.into_iter().chain([completed(None)]).collect()
}
