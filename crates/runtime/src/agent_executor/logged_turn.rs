//! The turn of a task as the log of its session contains it, after the process of the turn has ended.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Cause;
use allstop_core::turn::LostTurn;
use allstop_log::LoggedAnswer;
use allstop_task::{ExecutorError, Task, TaskEvent, TaskState};
use tokio::time::timeout;

use super::AgentExecutorInner;
use super::context_sessions::failed;
use super::execution::{answer_event, completed};
use super::message_text::agent_message;
use super::task_sessions::message_id_of;

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
        let session = self.sessions.session(&task.context_id).await?;
        let answer = session.committed_answer(&message_id_of(&task.id)).await;
        Ok(match answer.map_err(|error| failed(&error))? {
            LoggedAnswer::Committed(answer) => LoggedTurn::Committed(answer),
            LoggedAnswer::NotBegun => LoggedTurn::NotBegun,
            LoggedAnswer::NotCommitted(turn) => {
                let history = session.history().await.ok();
                let mut turns = history.iter().flat_map(|history| history.lost.iter());
                LoggedTurn::NotCommitted(turns.find(|lost| lost.turn == turn).cloned())
            }
        })
    }

    /// Events that end a stopped task. Its turn began in an earlier process.
    pub(super) async fn end_of_earlier_process(
        &self,
        task: &Task,
        cause: &Cause,
    ) -> Vec<TaskEvent> {
        let state = TaskState::after_stop(cause.kind);
        let logged = match timeout(READ_MAX, self.logged_turn(task)).await {
            Ok(Ok(logged)) => logged,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the calls of a stopped task cannot be read");
                return vec![TaskEvent::state(state)];
            }
            Err(_late) => {
                tracing::warn!("the log of a stopped task does not answer in time");
                return vec![TaskEvent::state(state)];
            }
        };
        match logged {
            LoggedTurn::Committed(answer) => events_of_answer(task, &answer),
            LoggedTurn::NotCommitted(Some(lost)) => {
                vec![TaskEvent::status(state, agent_message(lost.to_string()))]
            }
            LoggedTurn::NotCommitted(None) | LoggedTurn::NotBegun => vec![TaskEvent::state(state)],
        }
    }
}

/// Events that complete a task with the answer of its turn.
pub(super) fn events_of_answer(task: &Task, answer: &Arc<str>) -> Vec<TaskEvent> {
    let is_written = !task.artifacts.is_empty();
    let artifact = (!is_written).then(|| answer_event(answer));
    artifact.into_iter().chain([completed(None)]).collect()
}
