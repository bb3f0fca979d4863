//! Actions on tasks over HTTP+JSON that the library does not support. `POST /tasks/{id}:cancel` accepts the metadata of
//! the request. `POST /tasks/{id}:previewCancel` previews a stop: it returns the receipt that a `CancelTask` would have
//! now.

use a2a::{A2AError, CancelTaskRequest};
use a2a_pb::protojson_conv;
use a2a_server::{RequestHandler as _, ServiceParams};
use allstop_core::{Cause, CauseKind, Receipt};
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::limits::WholeRequest;
use crate::service::A2aService;
use crate::streaming::params_of;
use crate::{errors, rest};

/// Returns the response, if the request is one of these actions.
pub(crate) async fn answer(service: &A2aService, request: &WholeRequest) -> Option<Response> {
    let action = TaskAction::of(request.uri().path()).filter(|_| request.method() == Method::POST);
    let action = action?;
    let params = params_of(request.headers());
    let answer = match action {
        TaskAction::Preview(id) => {
            let preview = service.preview(&params, id).await;
            preview.map(|receipt| axum::Json(receipt).into_response())
        }
        TaskAction::Cancel(id) => {
            let cancelled = service.cancel_task(&params, cancel_request(id, request.body()));
            cancelled.await.and_then(|task| {
                let task = protojson_conv::to_value(&task);
                let task = task.map_err(|error| A2AError::internal(error.to_string()))?;
                Ok(axum::Json(task).into_response())
            })
        }
    };
    Some(answer.unwrap_or_else(|error| rest::error_response(&error)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskAction<'a> {
    Cancel(&'a str),
    Preview(&'a str),
}

impl<'a> TaskAction<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let (_, task) = path.rsplit_once("/tasks/")?;
        let cancelled = task
            .strip_suffix(":cancel")
            .or_else(|| task.strip_suffix("/cancel"));
        let previewed = task.strip_suffix(":previewCancel");
        cancelled.map(Self::Cancel).or(previewed.map(Self::Preview))
    }
}

/// Parses the request in a body. All fields are optional, and unreadable fields are ignored, so that a wrongly
/// described reason never prevents a stop.
fn cancel_request(id: &str, body: &[u8]) -> CancelTaskRequest {
    let mut fields: Value = serde_json::from_slice(body).unwrap_or_default();
    if !fields.is_object() {
        fields = json!({});
    }
    fields["id"] = id.into();
    protojson_conv::from_value(fields).unwrap_or_else(|_| CancelTaskRequest {
        id: id.to_owned(),
        metadata: None,
        tenant: None,
    })
}

impl A2aService {
    /// Returns the receipt that a stop of this task by its owner would have now.
    async fn preview(&self, params: &ServiceParams, id: &str) -> Result<Receipt, A2AError> {
        let task = self.task_of(params, id).await?;
        let cause = Cause::new(CauseKind::User).by(task.owner.to_string());
        let receipt = self.manager.preview(&task.id, cause).await;
        receipt.map_err(|error| errors::of_preview(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_that_cannot_be_read_refuses_no_stop() {
        for body in [
            "",
            "nonsense",
            "[]",
            "{\"id\":\"other\"}",
            "{\"metadata\":7}",
        ] {
            let request = cancel_request("t1", body.as_bytes());
            assert_eq!(
                (request.id.as_str(), request.metadata),
                ("t1", None),
                "{body}"
            );
        }
        assert_eq!(TaskAction::of("/tasks/t1"), None);
        assert_eq!(
            TaskAction::of("/tasks/t1:cancel"),
            Some(TaskAction::Cancel("t1"))
        );
    }
}
