//! A tool made of a closure.

use std::time::Duration;

use allstop_core::Effect;
use allstop_tools::{FnTool, Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec, tool};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

/// A tool made of a closure that accepts any arguments.
///
/// ```
/// use allstop_testkit::ToolFn;
///
/// let echo = ToolFn::new("echo", |call| async move { call.arguments.to_string() });
/// # let _ = echo;
/// ```
#[derive(Debug)]
pub struct ToolFn(FnTool);

impl ToolFn {
    /// A tool with this name. The closure returns the result of the tool.
    pub fn new<F>(name: &str, body: impl Fn(ToolInvocation) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = String> + Send + 'static,
    {
        Self::fallible(name, move |call| body(call).map(Ok))
    }

    /// A tool with this name whose closure may return an error.
    pub fn fallible<F>(
        name: &str,
        body: impl Fn(ToolInvocation) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        Self(tool(
            name,
            name,
            move |_arguments: Map<String, Value>, cx| {
                body(cx.into_invocation()).map(|answer| answer.map_err(ToolError::new))
            },
        ))
    }

    /// Sets the effect, which is the consequence of a repeated call.
    #[must_use]
    pub fn effect(self, effect: Effect) -> Self {
        Self(self.0.effect(effect))
    }

    /// Sets a time limit for each call.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self(self.0.timeout(timeout))
    }

    /// Forbids parallel calls.
    #[must_use]
    pub fn alone(self) -> Self {
        Self(self.0.parallel(false))
    }
}

impl Tool for ToolFn {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        self.0.call(invocation)
    }
}
