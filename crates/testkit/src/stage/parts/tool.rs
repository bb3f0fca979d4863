//! A tool with points.

use std::sync::Arc;

use allstop_scope::Scope;
use allstop_tools::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
use futures::future::BoxFuture;

use super::PartWatch;
use crate::observe::CallEnding;

#[derive(Debug)]
pub(crate) struct WatchedTool {
    pub(crate) inner: Arc<dyn Tool>,
    pub(crate) watch: PartWatch,
}

/// Notes how a call ended, when its future does.
struct NotedEnding<'a> {
    watch: &'a PartWatch,
    scope: Scope,
    id: Arc<str>,
    succeeded: Option<bool>,
}

impl Drop for NotedEnding<'_> {
    fn drop(&mut self) {
        self.watch.witness.note_call_ending(CallEnding {
            id: Arc::clone(&self.id),
            succeeded: self.succeeded,
            cause: self.scope.cause().map(|cause| cause.kind),
        });
    }
}

impl Tool for WatchedTool {
    fn spec(&self) -> &ToolSpec {
        self.inner.spec()
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let id: Arc<str> = invocation.call_id.as_str().into();
            let _alive = self.watch.witness.begin_call(&id, &invocation.scope);
            let mut ending = NotedEnding {
                watch: &self.watch,
                scope: invocation.scope.clone(),
                id: Arc::clone(&id),
                succeeded: None,
            };
            let call = async {
                let said = self.inner.call(invocation).await;
                ending.succeeded = Some(said.is_ok());
                said
            };
            self.watch.around("tool", id, call).await
        })
    }
}
