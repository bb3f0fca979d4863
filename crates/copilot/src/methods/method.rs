//! Common parts of all methods: context, answers, and the parsing of parameters.

use std::sync::Arc;

use allstop_core::SessionId;
use allstop_jsonrpc::RpcError;
use allstop_scope::WorkHandle;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::surrogates::without_lone_surrogates;
use crate::connection::Client;
use crate::hosted::HostedSession;
use crate::server::CopilotServer;

pub(crate) type MethodResult = Result<Value, RpcError>;

/// Answer of a method.
pub(crate) enum MethodAnswer {
    Now(MethodResult),
    Later(BoxFuture<'static, MethodResult>),
    /// A later answer that may be large. The server prepares only one large answer for a client at a time, after the
    /// client has read the earlier answers.
    Large(BoxFuture<'static, MethodResult>),
}

/// Context of a request.
pub(crate) struct MethodCx<'a> {
    pub server: &'a CopilotServer,
    pub client: &'a Arc<Client>,
}

/// Parses the parameters.
pub(super) fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RpcError> {
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

/// Parameters of a method that only names a session.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionIdParams {
    pub(super) session_id: String,
}

/// Converts an error of a file or of the store.
pub(super) fn failed(error: &impl std::fmt::Display) -> RpcError {
    RpcError::internal_error(error.to_string())
}

/// Returns an answer that is ready.
#[expect(clippy::unnecessary_wraps, reason = "the methods return this type")]
pub(super) fn ready(answer: Value) -> Result<MethodAnswer, RpcError> {
    Ok(MethodAnswer::Now(Ok(answer)))
}

/// Returns the open session with this id.
pub(super) fn open_session(cx: &MethodCx<'_>, id: &str) -> Result<Arc<HostedSession>, RpcError> {
    let found = cx.server.open_session(&SessionId::new(id));
    found.ok_or_else(|| {
        RpcError::invalid_params(format!(
            "Session not found: {id:?} is not open here: create it, or resume it"
        ))
    })
}

/// Returns the result of work that runs in the server's scope, and not in the scope of a connection.
pub(super) async fn whole<T>(work: Option<WorkHandle<T>>) -> Result<T, RpcError> {
    let done = match work {
        Some(work) => work.await.ok(),
        None => None,
    };
    done.ok_or_else(|| RpcError::overloaded("the server is being stopped"))
}

pub(super) fn large(answer: impl Future<Output = MethodResult> + Send + 'static) -> MethodAnswer {
    MethodAnswer::Large(Box::pin(answer))
}

pub(super) fn later(answer: impl Future<Output = MethodResult> + Send + 'static) -> MethodAnswer {
    MethodAnswer::Later(Box::pin(answer))
}
