//! A tool with points.

use std::sync::Arc;

use allstop_tools::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
use futures::future::BoxFuture;

use super::Watch;

#[derive(Debug)]
pub(crate) struct WatchedTool {
    pub(crate) inner: Arc<dyn Tool>,
    pub(crate) watch: Watch,
}

impl Tool for WatchedTool {
    fn spec(&self) -> &ToolSpec {
        self.inner.spec()
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let id: Arc<str> = invocation.call_id.as_str().into();
            let _alive = self.watch.world.begin_call(&id, &invocation.scope);
            let call = self.inner.call(invocation);
            self.watch.around("tool", id, call).await
        })
    }
}
