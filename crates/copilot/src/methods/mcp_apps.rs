//! `session.mcp.apps.*`: views of MCP servers, which a program shows. A view gets facts about the program (the host context),
//! and the program calls the tools of the server for the view.

use std::sync::Arc;

use allstop_core::CallId;
use allstop_core::receipt::ItemKind;
use allstop_jsonrpc::RpcError;
use allstop_scope::{ScopeOptions, WorkSpec};
use allstop_tools::mcp::{CALL_TIMEOUT_DEFAULT, McpState};
use allstop_tools::{CallLink, McpMeta, Tool, ToolInvocation, ToolSource as _};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::mcp;
use super::method::{
    MethodAnswer, MethodCx, MethodResult, failed, later, open_session, read, ready,
};
use crate::client_parts::server_name;
use crate::hosted::HostedSession;
use crate::server::CopilotServer;

/// Maximum size of a host context in bytes. It has a few names and settings.
const HOST_CONTEXT_BYTES_MAX: usize = 64 * 1_024;

/// Maximum number of names of tools in a diagnosis. They are examples.
const SAMPLE_TOOLS_MAX: usize = 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AppParams {
    session_id: String,
    server_name: Option<String>,
    context: Option<Map<String, Value>>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    if method == "session.mcp.apps.callTool" {
        return call(cx, params);
    }
    let params: AppParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    match method {
        "session.mcp.apps.setHostContext" => {
            let context = params.context;
            let context =
                context.ok_or_else(|| RpcError::invalid_params("`context` is missing"))?;
            if json!(context).to_string().len() > HOST_CONTEXT_BYTES_MAX {
                let message = format!("`context` is longer than {HOST_CONTEXT_BYTES_MAX} bytes");
                return Err(RpcError::invalid_params(message));
            }
            session.facts.set_host_context(context);
            ready(json!({}))
        }
        "session.mcp.apps.getHostContext" => {
            ready(json!({ "context": session.facts.host_context() }))
        }
        "session.mcp.apps.diagnose" => {
            let name = params.server_name.unwrap_or_default();
            ready(diagnose(cx.server, &session, &name))
        }
        "session.mcp.apps.listTools" | "session.mcp.apps.readResource" => {
            let message = "not found: of the methods for `mcp-apps`, this one is not offered";
            Err(RpcError::invalid_params(message))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

/// Describes the state of the views of a server.
fn diagnose(server: &CopilotServer, session: &HostedSession, name: &str) -> Value {
    let has_apps = session.has_apps();
    let found = mcp::find(server, session, name);
    let found = found.filter(|server| matches!(server.state(), McpState::Ready));
    let (tools, mut with_view) = found.as_ref().map_or_else(Default::default, |server| {
        (server.tool_names(), server.view_tool_names())
    });
    let count = with_view.len();
    with_view.truncate(SAMPLE_TOOLS_MAX);
    json!({
        "capability": {
            "sessionHasMcpApps": has_apps,
            // The feature has no switch except the option of the session.
            "featureFlagEnabled": true,
            // The extension is not announced to servers, because the server reads no views for the program.
            "advertised": false,
        },
        "server": {
            "connected": found.is_some(),
            "toolCount": tools.len(),
            "toolsWithUiMeta": count,
            "sampleToolNames": with_view,
        },
    })
}

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
fn call(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
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
