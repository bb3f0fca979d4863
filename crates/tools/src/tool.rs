//! The trait of a tool: a function that a model can call.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::record::CallOutcome;
use allstop_core::{CallId, Effect, Images, SessionId, TraceContext, error_chain};
use allstop_scope::Scope;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::call_link::CallLink;
use crate::effect::EffectPreview;
use crate::mcp_meta::{McpMeta, McpOrigin};

/// Specification of a tool, for the model and for the agent loop.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolSpec {
    /// Name of the tool for the model.
    pub name: Arc<str>,
    /// Description of the tool, for the model.
    pub description: Arc<str>,
    /// JSON schema of the arguments, which are validated before a call.
    pub input_schema: Arc<Value>,
    /// Consequence of repeating a call.
    pub effect: Effect,
    /// Time limit of one call. `None` means the time limit that the agent has for its tool calls.
    pub timeout: Option<Duration>,
    /// True if a call may run concurrently with other calls of its step.
    pub parallel: bool,
    /// Name of the tool in permission rules, if the tool is a built-in tool that a client knows under another name.
    /// `None` means `name`.
    pub name_in_rules: Option<Arc<str>>,
    /// Origin of the tool, if it is a tool of an MCP server.
    pub mcp: Option<McpOrigin>,
}

impl ToolSpec {
    /// Creates the specification of a tool whose calls are irreversible, have the time limit of the agent, and run one
    /// after the other. `input_schema` is the JSON schema of the arguments.
    pub fn new(
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        input_schema: impl Into<Arc<Value>>,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            input_schema: input_schema.into(),
            effect: Effect::Irreversible,
            timeout: None,
            parallel: false,
            name_in_rules: None,
            mcp: None,
        }
    }

    /// Sets the consequence of repeating a call.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// Sets the time limit of one call.
    #[must_use]
    pub fn timeout(mut self, max: impl Into<Option<Duration>>) -> Self {
        self.timeout = max.into();
        self
    }

    /// Sets the flag of calls that may run concurrently with other calls of their step.
    #[must_use]
    pub fn parallel(mut self, parallel: bool) -> Self {
        self.parallel = parallel;
        self
    }

    /// Name of the tool in permission rules.
    pub fn name_in_rules(&self) -> &Arc<str> {
        self.name_in_rules.as_ref().unwrap_or(&self.name)
    }
}

/// One call of a tool.
#[derive(Debug, Clone)]
pub struct ToolInvocation {
    /// Session of the call.
    pub session_id: SessionId,
    /// Id of the call, as in the receipts of stops. The id of a sub-agent's call includes the call that runs the
    /// sub-agent: `call_1/call_2`.
    pub call_id: CallId,
    /// Name under which the model called the tool.
    pub name: Arc<str>,
    /// Arguments, parsed and validated.
    pub arguments: Arc<Value>,
    /// Scope of the call: the node of the tree of work that a stop cancels. The call starts all its work in this scope.
    pub scope: Scope,
    /// W3C trace context. A stop does not change the trace context.
    pub trace: Option<TraceContext>,
    /// Side channel to the caller, for output and progress.
    pub link: CallLink,
    /// Metadata of the request, if the call goes to an MCP server.
    pub mcp_meta: McpMeta,
}

/// Answer of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// Text for the model.
    pub content: Arc<str>,
    /// Images for the model.
    pub images: Images,
}

impl ToolOutput {
    /// Sets the images.
    #[must_use]
    pub fn images(mut self, images: Images) -> Self {
        self.images = images;
        self
    }
}

/// An answer without images.
impl<T: Into<Arc<str>>> From<T> for ToolOutput {
    fn from(text: T) -> Self {
        Self {
            content: text.into(),
            images: Images::default(),
        }
    }
}

/// Failure of a call, which the model receives as an error result. Every error converts to this type with `?`, so this type
/// itself does not implement [`Error`].
#[derive(Debug, Clone)]
pub struct ToolError {
    /// Text for the model and for people.
    pub message: String,
    /// Outcome of the call.
    pub outcome: CallOutcome,
}

impl ToolError {
    /// Creates the error of a failed call.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            outcome: CallOutcome::Failed,
        }
    }

    /// Creates the error of a call whose work a stop has refused to start.
    pub fn not_started(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            outcome: CallOutcome::Stopped,
        }
    }

    /// Creates the error of a call whose end is unknown. Such a call may have done its work, completely or in part.
    pub fn outcome_unknown(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            outcome: CallOutcome::Unknown,
        }
    }

    /// Creates the error of a call that was ended by a time limit in its arguments.
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            outcome: CallOutcome::TimedOut,
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// A failed call whose message names the error and its sources. A plain text is also an error: `Err("no such key")?`.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self::new(error_chain(&*error.into()))
    }
}

/// A tool that a model can call.
pub trait Tool: Send + Sync + fmt::Debug {
    /// Specification of the tool.
    fn spec(&self) -> &ToolSpec;

    /// Runs one call.
    ///
    /// # Cancel safety
    /// A stop first cancels `invocation.scope`. If the future still runs after the grace period of the stop, it is
    /// dropped.
    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>>;

    /// Computes the effect of the call without running it, for a person who is asked to permit the call. `None`, the
    /// default, means that the arguments fully describe the effect.
    ///
    /// # Cancel safety
    /// A stop of the call drops the future.
    fn preview(&self, _invocation: ToolInvocation) -> BoxFuture<'_, Option<EffectPreview>> {
        Box::pin(std::future::ready(None))
    }
}

impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn spec(&self) -> &ToolSpec {
        (**self).spec()
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        (**self).call(invocation)
    }

    fn preview(&self, invocation: ToolInvocation) -> BoxFuture<'_, Option<EffectPreview>> {
        (**self).preview(invocation)
    }
}
