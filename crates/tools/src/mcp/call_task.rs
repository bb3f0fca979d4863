//! A call that the server continues as a task, with the extension `io.modelcontextprotocol/tasks`. The client asks for
//! the status of the task until it has a result.
//!
//! A stop asks the server to cancel the task. The server accepts this request without an obligation, so only the status
//! of the task proves its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_scope::{Ending, Registration, WorkSpec};
use futures::FutureExt as _;
use rmcp::model::{
    CallToolResult, CancelTaskParams, GetTaskParams, JsonObject, ServerResult, Task, TaskPayload,
    UpdateTaskParams,
};
use rmcp::service::{Peer, RoleClient};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::calls::{confirmed, not_confirmed};
use super::cancellation::UnsentCancellations;
use super::connection::{Connection, acknowledge, reason};
use super::input_round::answers;
use super::limits::{CANCEL_SETTLE, ROUNDS_MAX};
use crate::tool::{ToolError, ToolInvocation};

/// Pause between two requests for the status, if the server names none.
const POLL_DEFAULT: Duration = Duration::from_secs(1);

/// Minimum of this pause. A server may name no pause that would make the client busy.
const POLL_MIN: Duration = Duration::from_millis(100);

/// Maximum of this pause. A person should not wait longer for a result that is ready.
const POLL_MAX: Duration = Duration::from_secs(30);

/// Pause between two requests for the status after a stop.
const STOPPED_POLL: Duration = Duration::from_millis(50);

/// Number of failed requests in a row after which the outcome of the task counts as unknown. A single request may fail
/// because of the network.
const FAILURES_MAX: usize = 3;

/// Request to cancel a task, which is sent at most once.
#[derive(Debug)]
struct TaskCancellation {
    peer: Peer<RoleClient>,
    unsent: Arc<UnsentCancellations>,
    id: String,
    is_sent: AtomicBool,
}

impl TaskCancellation {
    fn request(&self) {
        if self.is_sent.swap(true, Ordering::AcqRel) {
            return;
        }
        let (peer, params) = (self.peer.clone(), CancelTaskParams::new(self.id.clone()));
        let sending = async move {
            // The answer proves nothing.
            drop(peer.cancel_task(params).await);
        };
        self.unsent.add(sending.boxed());
    }
}

/// A task without a known end. Dropping the value cancels the task.
struct RunningTask<'a> {
    connection: &'a Connection,
    invocation: &'a ToolInvocation,
    cancel: Arc<TaskCancellation>,
    /// `None` after the end of the task.
    registration: Option<Registration>,
}

/// Waits for the result of a task.
///
/// # Cancel safety
/// Dropping the future cancels the task at the server.
pub(super) async fn result_of(
    connection: &Connection,
    task: &Task,
    tool: &str,
    invocation: &ToolInvocation,
) -> Result<ServerResult, ToolError> {
    let cancel = Arc::new(TaskCancellation {
        peer: connection.peer.clone(),
        unsent: Arc::clone(&connection.calls.unsent),
        id: task.task_id.clone(),
        is_sent: AtomicBool::new(false),
    });
    let asked = Arc::clone(&cancel);
    let work = WorkSpec::new(ItemKind::Remote, tool);
    let scope = &invocation.scope;
    let registration = scope.register_remote(work, move || asked.request());
    let registration = match registration {
        Ok(registration) => registration,
        Err(refused) => {
            cancel.request();
            return Err(ToolError::outcome_unknown(refused.to_string()));
        }
    };
    let mut running = RunningTask {
        connection,
        invocation,
        cancel,
        registration: Some(registration),
    };
    let ended = tokio::select! {
        biased;
        () = scope.stopped() => None,
        ended = running.followed(task) => Some(ended?),
    };
    match ended {
        Some(payload) => running.concluded(payload),
        None => running.after_stop().await,
    }
}

impl RunningTask<'_> {
    /// Asks for the status until the task ends.
    async fn followed(&mut self, task: &Task) -> Result<TaskPayload, ToolError> {
        let mut pause = poll_pause(task);
        let (mut failures, mut rounds) = (0, 0);
        loop {
            sleep(pause).await;
            let id = &self.cancel.id;
            let got = match self
                .connection
                .peer
                .get_task(GetTaskParams::new(id.clone()))
                .await
            {
                Ok(got) => got.task,
                Err(_) if failures + 1 < FAILURES_MAX => {
                    failures += 1;
                    continue;
                }
                Err(error) => {
                    let server = &self.connection.server;
                    return Err(ToolError::outcome_unknown(format!(
                        "the server `{server}` does not report the status of its task: {error}; the outcome of the call is unknown"
                    )));
                }
            };
            failures = 0;
            self.invocation.link.heartbeat();
            pause = poll_pause(&got.task);
            match got.payload {
                TaskPayload::Working => {}
                TaskPayload::InputRequired { input_requests } if rounds < ROUNDS_MAX => {
                    rounds += 1;
                    let server = &self.connection.server;
                    let answers = answers(input_requests, server, self.invocation).await?;
                    let update = UpdateTaskParams::new(id.clone(), answers);
                    // A failure shows in the next status.
                    drop(self.connection.peer.update_task(update).await);
                }
                ended => return Ok(ended),
            }
        }
    }

    /// Waits a short time for the end of the task, after a stop.
    async fn after_stop(&mut self) -> Result<ServerResult, ToolError> {
        self.cancel.request();
        let settled_at = Instant::now() + CANCEL_SETTLE;
        loop {
            let params = GetTaskParams::new(self.cancel.id.clone());
            let got = timeout_at(settled_at, self.connection.peer.get_task(params)).await;
            if let Ok(Ok(got)) = got
                && got.task.status().is_terminal()
            {
                return self.concluded(got.task.payload);
            }
            if timeout_at(settled_at, sleep(STOPPED_POLL)).await.is_err() {
                break;
            }
        }
        let scope = &self.invocation.scope;
        // The future of the call acknowledges the stop, although the server has not ended the task.
        scope.stopped_at("mcp call").await;
        let server = &self.connection.server;
        let why = format!("the server `{server}` has not ended its task after tasks/cancel");
        if let Some(registration) = self.registration.take() {
            not_confirmed(registration, &why);
        }
        Err(ToolError::new(format!(
            "stopped: {}; {why}; the call may still be running",
            reason(scope)
        )))
    }

    /// Reports the end of the task, and returns its result.
    fn concluded(&mut self, payload: TaskPayload) -> Result<ServerResult, ToolError> {
        let Some(registration) = self.registration.take() else {
            return Err(ToolError::new("the task has ended before"));
        };
        let server = &self.connection.server;
        match payload {
            TaskPayload::Completed { result } => {
                registration.finish(Ending::Returned);
                let result = serde_json::from_value::<CallToolResult>(Value::Object(result));
                result.map(ServerResult::CallToolResult).map_err(|error| {
                    ToolError::new(format!(
                        "the call has ended, but the result of the server `{server}` cannot be read: {error}"
                    ))
                })
            }
            TaskPayload::Failed { error } => {
                confirmed(registration);
                acknowledge(&self.invocation.scope);
                let error = message_of(&error);
                Err(ToolError::new(format!(
                    "the server `{server}` answered with an error: {error}"
                )))
            }
            TaskPayload::Cancelled => {
                confirmed(registration);
                acknowledge(&self.invocation.scope);
                Err(ToolError::new(format!(
                    "the server `{server}` has cancelled the call"
                )))
            }
            _ => {
                not_confirmed(registration, "the status of the task is not known");
                Err(ToolError::outcome_unknown(format!(
                    "the server `{server}` reports an unknown status of its task; the outcome of the call is unknown"
                )))
            }
        }
    }
}

impl Drop for RunningTask<'_> {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.take() {
            self.cancel.request();
            not_confirmed(registration, "the client no longer follows the task");
        }
    }
}

fn poll_pause(task: &Task) -> Duration {
    let named = task.poll_interval_ms.map(Duration::from_millis);
    named.unwrap_or(POLL_DEFAULT).clamp(POLL_MIN, POLL_MAX)
}

fn message_of(error: &JsonObject) -> String {
    let message = error.get("message").and_then(Value::as_str);
    message.unwrap_or("without a message").to_owned()
}
