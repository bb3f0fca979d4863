//! The requests of the protocol, by name.
//!
//! Methods begin in the order in which their requests arrive. The beginning of a method performs all immediate steps.
//! The remaining work is a future, which the connection runs.

mod answers;
mod ids;
mod info;
mod lifecycle;
mod messages;
mod method;
mod open;
mod settings;
mod stops;
mod surrogates;
mod tasks;

use allstop_jsonrpc::RpcError;
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) use method::{MethodAnswer, MethodCx, MethodResult};

/// Begins the method of a request.
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
