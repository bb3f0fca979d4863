//! `session.mcp.apps.callTool`: calls of a program to the tools of the session's MCP servers, for the views of the servers.

use std::sync::Arc;

use allstop_core::CallId;
use allstop_core::receipt::ItemKind;
use allstop_jsonrpc::RpcError;
use allstop_scope::{ScopeOptions, WorkSpec};
use allstop_tools::mcp::CALL_TIMEOUT_DEFAULT;
use allstop_tools::{CallLink, McpMeta, Tool, ToolInvocation, ToolSource as _};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::method::{MethodAnswer, MethodCx, MethodResult, failed, later, open_session, read};
use crate::client_parts::server_name;
use crate::hosted::HostedSession;
use crate::server::CopilotServer;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallParams {
    session_id: String,
    server_name: String,
    tool_name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    /// Server of the view that makes the call.
    origin_server_name: Option<String>,
}

/// Calls a tool without a permission question, because the program itself requests the call. The call is work of the
/// session, so a stop of the session ends it, and the receipt lists it.
pub(super) fn call(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: CallParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    if !session.shows_apps(cx.client.id) {
        let message =
            "not found: the client has no `mcp-apps`: open the session with `requestMcpApps`";
        return Err(RpcError::invalid_params(message));
    }
    if params.origin_server_name.as_ref() != Some(&params.server_name) {
        let message =
            "`originServerName` differs from `serverName`: a view calls only its own server";
        return Err(RpcError::invalid_params(message));
    }
    let tool = find_tool(cx.server, &session, &params).ok_or_else(|| {
        let (server, tool) = (&params.server_name, &params.tool_name);
        RpcError::invalid_params(format!("the MCP server {server:?} has no tool {tool:?}"))
    })?;
    let arguments = Arc::new(Value::Object(params.arguments));
    Ok(later(async move { run(&session, tool, arguments).await }))
}

fn find_tool(
    server: &CopilotServer,
    session: &HostedSession,
    params: &CallParams,
) -> Option<Arc<dyn Tool>> {
    let servers = session.servers.as_ref()?.all();
    let output_folder = server.system().output_folder(session.id());
    let tools = servers.tools(&Arc::new(output_folder)).tools();
    let name = server_name(&params.server_name);
    tools.into_iter().find(|tool| {
        let origin = tool.spec().mcp.as_ref();
        origin.is_some_and(|origin| *origin.server == *name && *origin.tool == *params.tool_name)
    })
}

async fn run(session: &HostedSession, tool: Arc<dyn Tool>, arguments: Arc<Value>) -> MethodResult {
    let host = session.session.background_host().await;
    let host = host.map_err(|error| failed(&error))?;
    let spec = tool.spec();
    let call_id = CallId::new(format!("app_{}", ulid::Ulid::generate()));
    let work = WorkSpec::new(ItemKind::ToolCall, spec.name.to_string()).effect(spec.effect);
    let unit = work.clone().id(call_id.to_string());
    let options = ScopeOptions::default().unit(unit);
    let scope = host.scope().child(call_id.to_string(), options);
    let scope = scope.map_err(|refused| failed(&refused))?;
    let invocation = ToolInvocation {
        session_id: session.id().clone(),
        call_id,
        name: Arc::clone(&spec.name),
        arguments,
        scope: scope.clone(),
        trace: None,
        link: CallLink::default(),
        mcp_meta: McpMeta::default(),
    };
    let limit = spec.timeout.unwrap_or(CALL_TIMEOUT_DEFAULT);
    let calling = scope.spawn(work, |_| async move {
        timeout(limit, tool.call(invocation)).await
    });
    let called = calling.map_err(|refused| failed(&refused))?.await;
    scope.close();
    let text = |text: &str| json!({ "type": "text", "text": text });
    let error = |message: &str| Ok(json!({ "content": [text(message)], "isError": true }));
    match called {
        Ok(Ok(Ok(output))) => {
            let mut content = vec![text(&output.content)];
            content.extend(output.images.iter().map(|image| {
                let kind = image.media_type().as_str();
                json!({ "type": "image", "data": image.to_base64(), "mimeType": kind })
            }));
            Ok(json!({ "content": content, "isError": false }))
        }
        Ok(Ok(Err(failure))) => error(&failure.message),
        Ok(Err(_elapsed)) => error(&format!("the call took longer than {limit:?}")),
        Err(_stopped) => error("the call was stopped"),
    }
}
