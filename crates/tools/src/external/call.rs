//! The agent's side of external tools: a tool whose calls are sent as requests to the handler, which usually runs in
//! another process.

use std::sync::{Arc, OnceLock};

use allstop_core::receipt::{EndMethod, EndProof, Evidence, ItemKind};
use allstop_core::{Cause, CauseKind, Effect};
use allstop_scope::{Ending, Scope, WorkSpec};
use futures::future::BoxFuture;

use super::pending::{PendingRequests, RequestEnd};
use super::requests::{ExternalOptions, ExternalRequest, ExternalRequests, RequestId};
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};

/// Creates the tools of one handler, and the stream of their requests.
pub fn external_tools(
    specs: Vec<ToolSpec>,
    options: ExternalOptions,
) -> (Vec<Arc<dyn Tool>>, ExternalRequests) {
    let requests = Arc::new(PendingRequests::new(options));
    let tools = specs
        .into_iter()
        .map(|spec| {
            let requests = Arc::clone(&requests);
            Arc::new(ExternalTool { spec, requests }) as Arc<dyn Tool>
        })
        .collect();
    (tools, ExternalRequests::new(requests))
}

#[derive(Debug)]
struct ExternalTool {
    spec: ToolSpec,
    requests: Arc<PendingRequests>,
}

/// A call that waits for its answer. Dropping the guard removes the request.
struct RequestGuard {
    requests: Arc<PendingRequests>,
    id: RequestId,
    scope: Scope,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        // `abandon` has no effect if the request was answered before.
        self.requests.abandon(self.id, cause_of(&self.scope));
    }
}

fn cause_of(scope: &Scope) -> Cause {
    let dropped = || Cause::new(CauseKind::Parent).detail("its call was dropped");
    scope.cause().unwrap_or_else(dropped)
}

impl ExternalTool {
    async fn run(&self, invocation: ToolInvocation) -> Result<ToolOutput, ToolError> {
        let scope = invocation.scope;
        // The request is sent only after the tool call is registered as work of its scope, so the id of the request is
        // set later.
        let sent: Arc<OnceLock<RequestId>> = Arc::default();
        let cancel = {
            let (requests, sent, scope) =
                (Arc::clone(&self.requests), Arc::clone(&sent), scope.clone());
            move || {
                if let Some(id) = sent.get() {
                    requests.cancel(*id, cause_of(&scope));
                }
            }
        };
        let work =
            WorkSpec::new(ItemKind::Remote, Arc::clone(&self.spec.name)).effect(self.spec.effect);
        let registration = scope
            .register_remote(work, cancel)
            .map_err(|refused| ToolError::new(refused.to_string()))?;
        let request = ExternalRequest {
            request_id: RequestId(0),
            session_id: invocation.session_id,
            call_id: invocation.call_id,
            name: invocation.name,
            arguments: invocation.arguments,
            trace: invocation.trace,
            time_left: scope.time_left(),
        };
        let (id, mut answer) = match self.requests.send(request, invocation.link) {
            Ok(request) => request,
            Err(refused) => {
                registration.finish(Ending::Returned);
                return Err(ToolError::new(refused.to_string()));
            }
        };
        let _guard = RequestGuard {
            requests: Arc::clone(&self.requests),
            id,
            scope: scope.clone(),
        };
        sent.get_or_init(|| id);
        if scope.is_stopped() {
            // The stop may have come before the id was set. In that case the closure `cancel` had no effect.
            self.requests.cancel(id, cause_of(&scope));
        }
        // `PendingRequests` never drops the sender of this request before it has sent an end. So the fallback
        // `HandlerGone` below is not used.
        let unconfirmed = async {
            if self.requests.confirms_cancellation() {
                std::future::pending::<()>().await;
            }
            scope.stopped().await;
        };
        let end = tokio::select! {
            biased;
            end = &mut answer => end.unwrap_or(RequestEnd::HandlerGone { taken: true }),
            () = unconfirmed => {
                // If the handler has not taken the request, `cancel` ends the request at once, and the end can be
                // received here.
                self.requests.cancel(id, cause_of(&scope));
                answer.try_recv().unwrap_or(RequestEnd::NotConfirmed)
            }
        };
        let (ending, answer) = match end {
            RequestEnd::Answered(answer) => (Ending::Returned, answer),
            RequestEnd::ConfirmedCancelled => (
                Ending::Stopped {
                    how: EndMethod::RemoteConfirmed,
                    evidence: Evidence::verified(EndProof::RemoteConfirmed),
                },
                Err(ToolError::new(
                    "the handler ended the call without an answer",
                )),
            ),
            RequestEnd::NotConfirmed => (
                Ending::NotConfirmed,
                Err(ToolError::outcome_unknown(
                    "the handler was told to end the call; it cannot confirm that",
                )),
            ),
            RequestEnd::NeverTaken => (
                Ending::NotBegun,
                Err(ToolError::new(
                    "the handler had not taken the call: nothing was done",
                )),
            ),
            RequestEnd::HandlerGone { taken } => {
                let ending = if taken && scope.is_stopped() {
                    Ending::NotConfirmed
                } else {
                    Ending::Returned
                };
                (ending, Err(ToolError::new(self.handler_gone(taken))))
            }
        };
        registration.finish(ending);
        answer
    }

    fn handler_gone(&self, taken: bool) -> String {
        let done = match (taken, self.spec.effect) {
            (false, _) => "; it had not taken the call: nothing was done",
            (true, Effect::ReadOnly) => "",
            (true, _) => "; the outcome of the call is unknown",
        };
        format!("the handler of this tool has disconnected{done}")
    }
}

impl Tool for ExternalTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(self.run(invocation))
    }
}
