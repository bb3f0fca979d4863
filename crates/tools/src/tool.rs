//! The trait that a tool implements.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{CallId, Effect, SessionId};
use allstop_scope::Scope;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::call_link::CallLink;

/// What a tool is, for the model and for the loop.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    /// Its name, as the model calls it.
    pub name: Arc<str>,
    /// What it does, for the model.
    pub description: Arc<str>,
    /// The JSON schema of its arguments, which are checked against it before a call.
    pub input_schema: Arc<Value>,
    /// What repeating a call would do.
    pub effect: Effect,
    /// The limit of one call; `None`: the turn's.
    pub timeout: Option<Duration>,
    /// Whether calls of one step may run beside others.
    pub parallel: bool,
}

/// One call, as the tool sees it.
#[derive(Debug, Clone)]
pub struct ToolInvocation {
    /// The session.
    pub session_id: SessionId,
    /// The call, as receipts name it: one of a sub-agent behind the call that runs that, `call_1/call_2`.
    pub call_id: CallId,
    /// The tool's name, as the model called it.
    pub name: Arc<str>,
    /// Parsed and checked.
    pub arguments: Arc<Value>,
    /// Cancelled by a stop. Everything that the call starts is started here.
    pub scope: Scope,
    /// W3C trace context (`traceparent`); a stop never cancels it.
    pub trace: Option<Arc<str>>,
    /// What the call tells beside its answer, and is told.
    pub link: CallLink,
}

/// What a tool answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// What the model is told.
    pub content: Arc<str>,
}

/// The failure of a call: the model gets it as an error result.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// For the model and for people.
    pub message: String,
    /// Whether the call may have done its work, in whole or in part: its outcome is `unknown`, and not `failed`.
    pub outcome_unknown: bool,
}

impl ToolError {
    /// A call that has failed.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            outcome_unknown: false,
        }
    }

    /// A call whose end nobody has seen.
    pub fn outcome_unknown(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            outcome_unknown: true,
        }
    }
}

/// A tool.
pub trait Tool: Send + Sync + fmt::Debug {
    /// What it is.
    fn spec(&self) -> &ToolSpec;

    /// Runs one call.
    ///
    /// # Cancel safety
    /// The future is dropped when the stop's grace is over; before that `invocation.scope` is cancelled.
    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>>;
}
