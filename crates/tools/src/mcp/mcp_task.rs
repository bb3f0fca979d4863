//! A task at a server that continues a call, in two forms of the protocol:
//!
//! - The extension `io.modelcontextprotocol/tasks`. The server decides which calls become tasks.
//! - Revision 2025-11-25. A tool can require that the client asks for a task. The protocol library does not know this
//!   form, so its requests and answers are plain JSON here.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, CancelTaskParams, ClientRequest, CustomRequest,
    ErrorCode, ErrorData, GetTaskParams, InputRequests, InputResponses, JsonObject, ServerResult,
    TaskPayload, TaskStatus, UpdateTaskParams,
};
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::{Value, json};

use super::call_answer::CallAnswer;

/// Task at a server.
#[derive(Debug, Clone)]
pub(super) struct McpTask {
    pub(super) id: Arc<str>,
    form: TaskForm,
    /// Pause between two requests for the status, if the server names one.
    pub(super) poll_interval: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskForm {
    Extension,
    Revision2025,
}

/// Reported state of a task.
pub(super) enum TaskReport {
    Working,
    /// The task continues after these questions are answered.
    InputRequired(InputRequests),
    /// The server asks its questions with separate requests, while the client waits for the result.
    ResultRequired,
    Ended(CallAnswer),
}

/// Request for a task, which a tool of revision 2025-11-25 requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestedTask {
    /// Minimum lifetime of the task at the server. `None` leaves the time to the server.
    pub(super) kept_for: Option<Duration>,
}

impl RequestedTask {
    /// The request of a call that becomes a task.
    pub(super) fn request(self, params: &CallToolRequestParams) -> ClientRequest {
        let task = match self.kept_for {
            Some(time) => json!({"ttl": u64::try_from(time.as_millis()).unwrap_or(u64::MAX)}),
            None => json!({}),
        };
        let params = json!({"name": params.name, "arguments": params.arguments, "task": task});
        custom("tools/call", params)
    }
}

impl McpTask {
    /// Returns the task in the answer to a call. `None` if the answer is a result.
    pub(super) fn created(answer: &ServerResult) -> Option<Self> {
        match answer {
            ServerResult::CreateTaskResult(created) => Some(Self {
                id: created.task.task_id.as_str().into(),
                form: TaskForm::Extension,
                poll_interval: created.task.poll_interval_ms.map(Duration::from_millis),
            }),
            ServerResult::CustomResult(created) => {
                let task = created.0.get("task")?;
                let interval = task.get("pollInterval").and_then(Value::as_u64);
                Some(Self {
                    id: task.get("taskId")?.as_str()?.into(),
                    form: TaskForm::Revision2025,
                    poll_interval: interval.map(Duration::from_millis),
                })
            }
            _ => None,
        }
    }

    /// Asks the server to cancel the task. The answer proves nothing.
    pub(super) async fn cancel(&self, peer: &Peer<RoleClient>) {
        match self.form {
            TaskForm::Extension => {
                let params = CancelTaskParams::new(self.id.to_string());
                drop(peer.cancel_task(params).await);
            }
            TaskForm::Revision2025 => {
                drop(peer.send_request(self.request("tasks/cancel")).await);
            }
        }
    }

    /// Asks for the state of the task, and for the result of an ended task.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn report(
        &mut self,
        peer: &Peer<RoleClient>,
    ) -> Result<TaskReport, ServiceError> {
        match self.form {
            TaskForm::Extension => {
                let params = GetTaskParams::new(self.id.to_string());
                let task = peer.get_task(params).await?.task;
                if *task.task.task_id != *self.id {
                    return Err(ServiceError::UnexpectedResponse);
                }
                self.poll_interval = task.task.poll_interval_ms.map(Duration::from_millis);
                Ok(report_of(task.payload))
            }
            TaskForm::Revision2025 => {
                let answer = peer.send_request(self.request("tasks/get")).await?;
                if is_of_other_task(&answer, &self.id) {
                    return Err(ServiceError::UnexpectedResponse);
                }
                match status_of(&answer).ok_or(ServiceError::UnexpectedResponse)? {
                    TaskStatus::Completed | TaskStatus::Failed => {
                        self.result(peer).await.map(TaskReport::Ended)
                    }
                    TaskStatus::Cancelled => Ok(TaskReport::Ended(CallAnswer::Cancelled)),
                    TaskStatus::InputRequired => Ok(TaskReport::ResultRequired),
                    _ => Ok(TaskReport::Working),
                }
            }
        }
    }

    /// Waits for the result of a task of revision 2025-11-25.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn result(&self, peer: &Peer<RoleClient>) -> Result<CallAnswer, ServiceError> {
        match peer.send_request(self.request("tasks/result")).await {
            Ok(result) => Ok(CallAnswer::Result(Box::new(result))),
            Err(ServiceError::McpError(error)) => Ok(CallAnswer::Error(error)),
            Err(error) => Err(error),
        }
    }

    /// Sends the answers to the questions of a task.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server may receive the answers.
    pub(super) async fn update(&self, peer: &Peer<RoleClient>, answers: InputResponses) {
        let update = UpdateTaskParams::new(self.id.to_string(), answers);
        // A failure shows in the next report.
        drop(peer.update_task(update).await);
    }

    fn request(&self, method: &str) -> ClientRequest {
        custom(method, json!({ "taskId": self.id }))
    }
}

fn custom(method: &str, params: Value) -> ClientRequest {
    ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)))
}

/// Status in the answer to `tasks/get` of revision 2025-11-25. The protocol library parses some of these answers as
/// those of the extension.
/// True for an answer about a task with another id, which proves nothing about this task.
fn is_of_other_task(answer: &ServerResult, id: &str) -> bool {
    match answer {
        ServerResult::GetTaskResult(got) => got.task.task.task_id != id,
        ServerResult::CustomResult(got) => {
            let other = got.0.get("taskId").and_then(Value::as_str);
            other.is_some_and(|other| other != id)
        }
        _ => false,
    }
}

fn status_of(answer: &ServerResult) -> Option<TaskStatus> {
    match answer {
        ServerResult::GetTaskResult(got) => Some(got.task.status()),
        ServerResult::CustomResult(got) => {
            serde_json::from_value(got.0.get("status")?.clone()).ok()
        }
        _ => None,
    }
}

fn report_of(payload: TaskPayload) -> TaskReport {
    TaskReport::Ended(match payload {
        TaskPayload::Working => return TaskReport::Working,
        TaskPayload::InputRequired { input_requests } => {
            return TaskReport::InputRequired(input_requests);
        }
        TaskPayload::Completed { result } => {
            match serde_json::from_value::<CallToolResult>(Value::Object(result)) {
                Ok(result) => CallAnswer::Result(Box::new(ServerResult::CallToolResult(result))),
                Err(error) => CallAnswer::Unreadable(error.to_string().into()),
            }
        }
        TaskPayload::Failed { error } => CallAnswer::Error(error_of(&error)),
        TaskPayload::Cancelled => CallAnswer::Cancelled,
        _ => CallAnswer::Cut("the status of its task is not known".into()),
    })
}

fn error_of(error: &JsonObject) -> ErrorData {
    let code = error.get("code").and_then(Value::as_i64);
    let code = code.and_then(|code| i32::try_from(code).ok());
    let message = error.get("message").and_then(Value::as_str);
    let message = message.unwrap_or("without a message").to_owned();
    ErrorData::new(
        code.map_or(ErrorCode::INTERNAL_ERROR, ErrorCode),
        message,
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_task_of_revision_2025_is_found() {
        let created = json!({"task": {
            "taskId": "t1", "status": "working", "ttl": 60_000, "pollInterval": 500,
            "createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z",
        }});
        let answer: ServerResult = serde_json::from_value(created).unwrap();
        let task = McpTask::created(&answer).unwrap();
        assert_eq!((&*task.id, task.form), ("t1", TaskForm::Revision2025));
        assert_eq!(task.poll_interval, Some(Duration::from_millis(500)));
        let result: ServerResult = serde_json::from_value(json!({"content": []})).unwrap();
        assert!(McpTask::created(&result).is_none());
    }

    #[test]
    fn each_status_of_revision_2025_is_read() {
        for (text, status) in [
            ("working", TaskStatus::Working),
            ("input_required", TaskStatus::InputRequired),
            ("completed", TaskStatus::Completed),
            ("failed", TaskStatus::Failed),
            ("cancelled", TaskStatus::Cancelled),
        ] {
            let got = json!({
                "taskId": "t1", "status": text, "ttl": null, "pollInterval": 500,
                "createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z",
            });
            let answer: ServerResult = serde_json::from_value(got).unwrap();
            assert_eq!(status_of(&answer), Some(status), "{answer:?}");
        }
    }
}
