//! The requests of the protocol, by name.
//!
//! A method begins in the order in which its request arrived. What can be done at once is done there; the rest is a future
//! that the connection runs.

mod answers;
mod ids;
mod info;
mod lifecycle;
mod messages;
mod open;
mod settings;
mod stops;
mod surrogates;
mod tasks;

use std::sync::Arc;

use allstop_core::SessionId;
use allstop_jsonrpc::RpcError;
use allstop_scope::WorkHandle;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::connection::Client;
use crate::hosted::HostedSession;
use crate::server::CopilotServer;
use surrogates::without_lone_surrogates;

pub(crate) type MethodResult = Result<Value, RpcError>;

/// Answer of a method.
pub(crate) enum MethodAnswer {
    Now(MethodResult),
    Later(BoxFuture<'static, MethodResult>),
    /// The same, and it may be large: one at a time for each client, once it has read the earlier ones.
    Large(BoxFuture<'static, MethodResult>),
}

/// Context of a request.
pub(crate) struct MethodCx<'a> {
    pub server: &'a CopilotServer,
    pub client: &'a Arc<Client>,
}

/// Begins a request.
pub(crate) fn begin(cx: &MethodCx<'_>, method: &str, params: Option<&RawValue>) -> MethodAnswer {
    let begun = match method {
        "connect" | "ping" | "status.get" | "auth.getStatus" | "models.list" => {
            info::begin(cx, method, params)
        }
        "runtime.shutdown" => {
            cx.server.request_shutdown();
            Ok(MethodAnswer::Now(Ok(Value::Object(serde_json::Map::new()))))
        }
        "session.create" => open::create(cx, params),
        "session.resume" => open::resume(cx, params),
        "session.detach" | "session.destroy" => lifecycle::detach(cx, params),
        "session.delete" => lifecycle::delete(cx, params),
        "session.list" | "session.getLastId" | "session.getMetadata" => {
            lifecycle::look(cx, method, params)
        }
        "session.getMessages" => lifecycle::messages(cx, params),
        "session.send" => messages::send(cx, params),
        "session.sendAndWait" => messages::send_and_wait(cx, params),
        "session.options.update"
        | "session.eventLog.registerInterest"
        | "session.mode.get"
        | "session.model.getCurrent"
        | "session.metadata.isProcessing"
        | "session.metadata.activity" => settings::begin(cx, method, params),
        "session.abort" => stops::abort(cx, params),
        "session.interruptMainTurn" => stops::interrupt(cx, params),
        "session.cancelAllBackgroundAgents" => stops::cancel_agents(cx, params),
        "allstop.cancelToolCall" => stops::cancel_call(cx, params),
        "allstop.stop" => stops::stop(cx, params),
        "allstop.preview" => stops::preview(cx, params),
        "session.tools.handlePendingToolCall" => answers::tool(cx, params),
        "session.permissions.handlePendingPermissionRequest" => answers::permission(cx, params),
        _ => match method.strip_prefix("session.tasks.") {
            Some(name) => tasks::begin(cx, name, params),
            None => Err(RpcError::method_not_found(method)),
        },
    };
    begun.unwrap_or_else(|error| MethodAnswer::Now(Err(error)))
}

/// Reads the parameters.
fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RpcError> {
    let text = params.map_or("{}", RawValue::get);
    let text = without_lone_surrogates(text);
    let mut json = serde_json::Deserializer::from_str(&text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let message = match error.path().to_string().as_str() {
            "." => error.inner().to_string(),
            path => format!("`{path}`: {}", error.inner()),
        };
        RpcError::invalid_params(message)
    })
}

/// The open session of this id.
fn open_session(cx: &MethodCx<'_>, id: &str) -> Result<Arc<HostedSession>, RpcError> {
    let found = cx.server.open_session(&SessionId::new(id));
    found.ok_or_else(|| {
        RpcError::invalid_params(format!(
            "session {id:?} is not open here: create it, or resume it"
        ))
    })
}

/// The result of work that runs in the server's own scope.
async fn whole<T>(work: Option<WorkHandle<T>>) -> Result<T, RpcError> {
    let done = match work {
        Some(work) => work.await.ok(),
        None => None,
    };
    done.ok_or_else(|| RpcError::overloaded("the server is being stopped"))
}

fn large(answer: impl Future<Output = MethodResult> + Send + 'static) -> MethodAnswer {
    MethodAnswer::Large(Box::pin(answer))
}

fn later(answer: impl Future<Output = MethodResult> + Send + 'static) -> MethodAnswer {
    MethodAnswer::Later(Box::pin(answer))
}
