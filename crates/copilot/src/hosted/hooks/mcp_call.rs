//! Tools of MCP servers whose requests get their metadata from the hook `preMcpToolCall`.

use std::sync::Arc;

use allstop_agent::HookCx;
use allstop_core::TurnNumber;
use allstop_tools::{
    EffectPreview, McpMeta, McpOrigin, Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec,
};
use futures::future::BoxFuture;
use serde_json::json;

use super::request::{HookRequestError, HookRequests};

const HOOK: &str = "preMcpToolCall";

/// A tool of an MCP server. Before each call, a client chooses the metadata of the request.
#[derive(Debug)]
pub(in crate::hosted) struct HookedMcpTool {
    inner: Arc<dyn Tool>,
    requests: HookRequests,
}

impl HookedMcpTool {
    pub(in crate::hosted) fn new(inner: Arc<dyn Tool>, requests: HookRequests) -> Self {
        Self { inner, requests }
    }

    /// Asks a client for the metadata. `None` if no client with hooks is attached, or if the client keeps the metadata.
    async fn meta(
        &self,
        origin: &McpOrigin,
        invocation: &ToolInvocation,
    ) -> Result<Option<McpMeta>, ToolError> {
        let Some(client) = self.requests.client() else {
            return Ok(None);
        };
        let cx = HookCx {
            session_id: invocation.session_id.clone(),
            // The requests do not contain the turn.
            turn: TurnNumber(0),
            scope: invocation.scope.clone(),
        };
        let input = json!({
            "toolCallId": invocation.call_id,
            "serverName": origin.server,
            "toolName": origin.tool,
            "arguments": invocation.arguments,
        });
        let scope = &invocation.scope;
        let output = tokio::select! {
            biased;
            () = scope.stopped() => {
                scope.stopped_at(HOOK).await;
                return Err(ToolError::not_started("stopped before the call was sent"));
            }
            output = self.requests.call(&client, &cx, HOOK, input) => output,
        };
        match output {
            Ok(output) => output.meta().map_err(ToolError::new),
            Err(HookRequestError::Stopped) => {
                Err(ToolError::not_started("stopped before the call was sent"))
            }
            // The hook may add metadata that the server needs, such as a tenant.
            Err(HookRequestError::NoAnswer(error)) => Err(ToolError::new(format!(
                "the hook {HOOK} did not answer, and the call was not sent: {error}"
            ))),
        }
    }
}

impl Tool for HookedMcpTool {
    fn spec(&self) -> &ToolSpec {
        self.inner.spec()
    }

    fn call(&self, mut invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            if let Some(origin) = &self.inner.spec().mcp
                && let Some(meta) = self.meta(origin, &invocation).await?
            {
                invocation.mcp_meta = meta;
            }
            self.inner.call(invocation).await
        })
    }

    fn preview(&self, invocation: ToolInvocation) -> BoxFuture<'_, Option<EffectPreview>> {
        self.inner.preview(invocation)
    }
}
