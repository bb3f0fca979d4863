//! Context of one call of a tool that is a function.

use std::future::Future;
use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::record::Attachment;
use allstop_core::{CallId, Cause, SessionId, TraceContext};
use allstop_scope::{Scope, WorkCx};
use futures::FutureExt as _;

use crate::background::{TaskCx, TaskSpec, start_task};
use crate::call_link::CallLink;
use crate::call_progress::CallProgress;
use crate::output::{BoundedOutput, OutputLimits};
use crate::tool::{ToolError, ToolInvocation};

/// Context of one call of a tool: its stop, its output, its background work. Clones belong to one call.
#[derive(Debug, Clone)]
pub struct ToolCx {
    invocation: ToolInvocation,
    /// Set on the thread of a blocking tool.
    thread: Option<WorkCx>,
}

impl ToolCx {
    pub(super) fn new(invocation: ToolInvocation, thread: Option<WorkCx>) -> Self {
        Self { invocation, thread }
    }

    /// Returns the call as a type that implements [`Tool`](crate::Tool) gets it.
    pub fn into_invocation(self) -> ToolInvocation {
        self.invocation
    }

    /// Session of the call.
    pub fn session_id(&self) -> &SessionId {
        &self.invocation.session_id
    }

    /// Id of the call, as in receipts.
    pub fn call_id(&self) -> &CallId {
        &self.invocation.call_id
    }

    /// Scope of the call. A stop of the call covers all work in this scope: futures, threads and processes.
    pub fn scope(&self) -> &Scope {
        &self.invocation.scope
    }

    /// W3C trace context of the message. A stop does not change it.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.invocation.trace.as_ref()
    }

    /// Side channel of the call, for heartbeats and usage.
    pub fn link(&self) -> &CallLink {
        &self.invocation.link
    }

    /// Sends a piece of output to the subscribers. The model does not receive it.
    pub fn output(&self, output: impl AsRef<[u8]>) {
        self.invocation.link.output(output);
    }

    /// Sends progress to the subscribers. Later progress replaces earlier progress.
    pub fn progress(&self, progress: &CallProgress) {
        self.invocation.link.progress(progress);
    }

    /// True if a stop covers the call.
    pub fn is_stopped(&self) -> bool {
        self.scope().is_stopped()
    }

    /// Resolves when a stop covers the call, and then acknowledges the stop at this checkpoint. After that, the tool still
    /// has to return.
    ///
    /// # Cancel safety
    /// Cancel safe: a future that is dropped before it resolves acknowledges nothing.
    pub async fn stopped_at(&self, checkpoint: &'static str) -> Cause {
        match &self.thread {
            Some(thread) => thread.stopped_at(checkpoint).await,
            None => self.scope().stopped_at(checkpoint).await,
        }
    }

    /// If a stop covers the call, acknowledges the stop at this checkpoint. Use this function in loops, with `?`.
    ///
    /// # Errors
    /// If a stop covers the call.
    pub fn checkpoint(&self, checkpoint: &'static str) -> Result<(), ToolError> {
        if !self.is_stopped() {
            return Ok(());
        }
        let cause = self.stopped_at(checkpoint).now_or_never();
        Err(stopped(cause))
    }

    /// Awaits a future, unless a stop covers the call first. The stop then drops the future and is acknowledged at the
    /// checkpoint `unless_stopped`. So use this function for futures that may be dropped at any point, such as a wait or a
    /// read: if a half-done effect is possible, await the future directly, and the receipt reports the call as `unknown`.
    ///
    /// # Errors
    /// If a stop covers the call.
    ///
    /// # Cancel safety
    /// As cancel safe as the future itself.
    pub async fn unless_stopped<F: Future>(&self, future: F) -> Result<F::Output, ToolError> {
        tokio::select! {
            biased;
            cause = self.stopped_at("unless_stopped") => Err(stopped(Some(cause))),
            output = future => Ok(output),
        }
    }

    /// Starts background work, which continues after the call: stops of the turn do not cover it, and
    /// `Session::send_and_wait` waits for it. The future returns its answer, or the reason of its failure; the model
    /// receives it as a note with the next message.
    ///
    /// # Errors
    /// If a stop covers the call, or if the call belongs to no session.
    pub fn start_background<F>(
        &self,
        name: impl Into<Arc<str>>,
        make: impl FnOnce(TaskCx) -> F + Send + 'static,
    ) -> Result<BackgroundId, ToolError>
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        let Some(host) = self.link().background() else {
            return Err(ToolError::new("background work needs a session"));
        };
        let spec = TaskSpec {
            call_id: self.call_id().clone(),
            call: self.scope().clone(),
            name: name.into(),
            attachment: Attachment::Attached,
            output: BoundedOutput::in_memory(OutputLimits::default()).into(),
            link: CallLink::unwatched(self.call_id().clone()),
            answer_if_lost: None,
        };
        match start_task(&*host, spec, make) {
            Ok(work) => Ok(work.id.clone()),
            Err(refused) => Err(ToolError::not_started(refused.to_string())),
        }
    }
}

fn stopped(cause: Option<Cause>) -> ToolError {
    ToolError::not_started(match cause {
        Some(cause) => format!("stopped: {cause}"),
        None => "stopped".to_owned(),
    })
}
