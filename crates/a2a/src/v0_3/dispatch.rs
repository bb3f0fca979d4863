//! The methods of version 0.3, as operations of the service.

use a2a::{
    A2AError, GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, JsonRpcId,
    JsonRpcResponse, ListTaskPushNotificationConfigsRequest, TaskPushNotificationConfig,
    error_code, methods,
};
use a2a_server::{RequestHandler as _, ServiceParams};
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::event::written;
use super::{card, from_v0_3, to_v0_3};
use crate::access::AccessControl;
use crate::events::{NumberedEvent, until_revoked};
use crate::jsonrpc;
use crate::limits::WholeRequest;
use crate::service::A2aService;
use crate::streaming::{EventForm, is_json, params_of, sse};

/// Request of JSON-RPC. A request without an id is answered like one with the id `null`, as in the official SDKs.
#[derive(Deserialize)]
struct Call {
    jsonrpc: String,
    id: Option<JsonRpcId>,
    method: String,
    params: Option<Value>,
}

/// Returns the response to a JSON-RPC request of version 0.3. Returns `None` for requests that are not JSON-RPC, because
/// the library describes the error to the client.
pub(crate) async fn answer(
    service: &A2aService,
    access: &AccessControl,
    request: &WholeRequest,
) -> Option<Response> {
    if request.method() != Method::POST {
        return None;
    }
    let headers = request.headers();
    if !is_json(headers) {
        let error = A2AError::content_type_not_supported();
        return Some(jsonrpc::error_response(JsonRpcId::Null, &error));
    }
    let call: Call = serde_json::from_slice(request.body()).ok()?;
    if call.jsonrpc != "2.0" {
        return None;
    }
    let id = call.id.unwrap_or(JsonRpcId::Null);
    let params = params_of(headers);
    let body = call.params.unwrap_or(Value::Null);
    let events = match call.method.as_str() {
        "message/stream" => stream_message(service, &params, body).await,
        "tasks/resubscribe" => resubscribe(service, &params, body).await,
        method => {
            let result = unary(service, &params, method, body).await;
            return Some(response(id, result));
        }
    };
    let events = events.unwrap_or_else(|error| stream::iter([Err(error)]).boxed());
    let events = until_revoked(events, access.revoked(headers));
    Some(sse(events, EventForm::JsonRpcV03(id)))
}

fn response(id: JsonRpcId, result: Result<Value, A2AError>) -> Response {
    match result {
        Ok(result) => axum::Json(JsonRpcResponse::success(id, result)).into_response(),
        Err(error) => jsonrpc::error_response(id, &error),
    }
}

async fn stream_message(
    service: &A2aService,
    params: &ServiceParams,
    body: Value,
) -> Result<BoxStream<'static, NumberedEvent>, A2AError> {
    let request = from_v0_3::send_message(body)?;
    service.send_numbered(params, request).await
}

async fn resubscribe(
    service: &A2aService,
    params: &ServiceParams,
    body: Value,
) -> Result<BoxStream<'static, NumberedEvent>, A2AError> {
    let request = from_v0_3::subscribe(body)?;
    service.subscribe_numbered(params, request).await
}

async fn unary(
    service: &A2aService,
    params: &ServiceParams,
    method: &str,
    body: Value,
) -> Result<Value, A2AError> {
    match method {
        "message/send" => {
            let request = from_v0_3::send_message(body)?;
            let response = service.send_message(params, request).await?;
            written(to_v0_3::send_response(response))
        }
        "tasks/get" => {
            let request = from_v0_3::get_task(body)?;
            let task = service.get_task(params, request).await?;
            value(&to_v0_3::task(task))
        }
        "tasks/cancel" => {
            let request = from_v0_3::cancel_task(body)?;
            let task = service.cancel_task(params, request).await?;
            value(&to_v0_3::task(task))
        }
        "tasks/pushNotificationConfig/set" => {
            let request = from_v0_3::set_push_config(body)?;
            let config = service.create_push_config(params, request).await?;
            value(&to_v0_3::push_config(config))
        }
        "tasks/pushNotificationConfig/get" => {
            let config = push_config(service, params, body).await?;
            value(&to_v0_3::push_config(config))
        }
        "tasks/pushNotificationConfig/list" => {
            let (task_id, _) = from_v0_3::push_config_ids(body)?;
            let configs = all_push_configs(service, params, task_id).await?;
            let configs: Vec<_> = configs.into_iter().map(to_v0_3::push_config).collect();
            value(&configs)
        }
        "tasks/pushNotificationConfig/delete" => {
            let request = from_v0_3::delete_push_config(body)?;
            service.delete_push_config(params, request).await?;
            Ok(Value::Null)
        }
        "agent/getAuthenticatedExtendedCard" => {
            let request = GetExtendedAgentCardRequest { tenant: None };
            let card = service.get_extended_agent_card(params, request).await?;
            written(card::with_fields_of_v0_3(&card))
        }
        method => Err(unknown(method)),
    }
}

/// Returns the configuration with the id in the request, or the first configuration of the task.
async fn push_config(
    service: &A2aService,
    params: &ServiceParams,
    body: Value,
) -> Result<TaskPushNotificationConfig, A2AError> {
    let (task_id, id) = from_v0_3::push_config_ids(body)?;
    if let Some(id) = id {
        let request = GetTaskPushNotificationConfigRequest {
            task_id,
            id,
            tenant: None,
        };
        return service.get_push_config(params, request).await;
    }
    let configs = all_push_configs(service, params, task_id.clone()).await?;
    configs.into_iter().next().ok_or_else(|| {
        let text = format!("task {task_id} has no push notification configuration");
        A2AError::new(error_code::TASK_NOT_FOUND, text)
    })
}

/// Returns the configurations of a task. A page without a size contains all of them.
async fn all_push_configs(
    service: &A2aService,
    params: &ServiceParams,
    task_id: String,
) -> Result<Vec<TaskPushNotificationConfig>, A2AError> {
    let request = ListTaskPushNotificationConfigsRequest {
        task_id,
        page_size: None,
        page_token: None,
        tenant: None,
    };
    let page = service.list_push_configs(params, request).await?;
    Ok(page.configs)
}

/// Names the version that a method of version 1 needs.
fn unknown(method: &str) -> A2AError {
    if methods::is_valid(method) {
        let text = format!(
            "version not supported: 0.3 has no method {method}; send the header A2A-Version: 1.0"
        );
        return A2AError::new(error_code::VERSION_NOT_SUPPORTED, text);
    }
    A2AError::method_not_found(method)
}

fn value(response: &impl Serialize) -> Result<Value, A2AError> {
    written(serde_json::to_value(response))
}
