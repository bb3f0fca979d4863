//! A tool made of a closure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::Effect;
use allstop_tools::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;

type Body =
    dyn Fn(ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;

/// A tool made of a closure that accepts any arguments.
///
/// ```
/// use allstop_testkit::ToolFn;
///
/// let echo = ToolFn::new("echo", |call| async move { call.arguments.to_string() });
/// # let _ = echo;
/// ```
pub struct ToolFn {
    spec: ToolSpec,
    body: Box<Body>,
}

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
        let spec = ToolSpec::new(name, name, Arc::new(json!({"type": "object"}))).parallel(true);
        let body = move |call| {
            let answer = body(call);
            async move {
                match answer.await {
                    Ok(text) => Ok(text.into()),
                    Err(message) => Err(ToolError::new(message)),
                }
            }
            .boxed()
        };
        Self {
            spec,
            body: Box::new(body),
        }
    }

    /// Sets the effect, which is the consequence of a repeated call.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.spec.effect = effect;
        self
    }

    /// Sets a time limit for each call.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.spec.timeout = Some(timeout);
        self
    }

    /// Forbids parallel calls.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.spec.parallel = false;
        self
    }
}

impl fmt::Debug for ToolFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolFn")
            .field("name", &self.spec.name)
            .finish_non_exhaustive()
    }
}

impl Tool for ToolFn {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        (self.body)(invocation)
    }
}
