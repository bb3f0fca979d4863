//! A tool of an MCP server.

use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::model::CallToolRequestParams;
use serde_json::Value;

use super::convert::{McpToolDefinition, McpToolResult, content_of};
use super::mcp_task::RequestedTask;
use super::server::McpServer;
use crate::mcp_meta::McpOrigin;
use crate::output::{BoundedOutput, OutputFolder, OutputLimits};
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};

/// Tool of a server, for one session. Output that is too long for memory is written to that session's folder.
#[derive(Debug)]
pub(super) struct McpTool {
    spec: ToolSpec,
    tool: Arc<str>,
    task: Option<RequestedTask>,
    server: Arc<McpServer>,
    output_folder: Arc<OutputFolder>,
}

impl McpTool {
    pub(super) fn new(
        server: &Arc<McpServer>,
        definition: &McpToolDefinition,
        output_folder: &Arc<OutputFolder>,
    ) -> Self {
        let spec = ToolSpec {
            name: Arc::clone(&definition.name),
            description: Arc::clone(&definition.description),
            input_schema: Arc::clone(&definition.input_schema),
            effect: definition.effect,
            timeout: server.call_timeout(),
            parallel: true,
            name_in_rules: None,
            mcp: Some(McpOrigin {
                server: Arc::clone(server.name()),
                tool: Arc::clone(&definition.tool),
            }),
        };
        // After this time, no caller waits for the task.
        let kept_for = spec.timeout;
        Self {
            spec,
            tool: Arc::clone(&definition.tool),
            task: definition.needs_task.then_some(RequestedTask { kept_for }),
            server: Arc::clone(server),
            output_folder: Arc::clone(output_folder),
        }
    }

    async fn run(&self, invocation: ToolInvocation) -> Result<ToolOutput, ToolError> {
        let arguments = match &*invocation.arguments {
            Value::Object(arguments) => arguments.clone(),
            _ => {
                return Err(ToolError::new(format!(
                    "the arguments of `{}` must be an object",
                    self.spec.name
                )));
            }
        };
        let connection = self.server.connection(&invocation.scope).await;
        let connection = connection.map_err(ToolError::new)?;
        let params = CallToolRequestParams::new(self.tool.to_string()).with_arguments(arguments);
        let result = connection.call(params, self.task, &invocation).await?;
        let Some(content) = content_of(result) else {
            return Err(ToolError::new(format!(
                "the server `{}` did not return a tool result",
                self.server.name()
            )));
        };
        let McpToolResult {
            text,
            images,
            is_error,
        } = content;
        let mut output =
            BoundedOutput::new(OutputLimits::default(), Arc::clone(&self.output_folder));
        output.push(text.as_bytes());
        let text = output.text();
        if is_error {
            return Err(ToolError::new(text));
        }
        Ok(ToolOutput::from(text).images(images))
    }
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(self.run(invocation))
    }
}
