//! The agent's side: a tool whose calls go out as requests.

use std::sync::{Arc, OnceLock};

use allstop_core::receipt::{Evidence, How, ItemKind, Verified};
use allstop_core::{Cause, CauseKind, Effect};
use allstop_scope::{Ending, Scope, WorkSpec};
use futures::future::BoxFuture;

use super::desk::{Desk, End};
use super::requests::{ExternalOptions, ExternalRequest, ExternalRequests, RequestId};
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};

/// Creates the tools of one handler, and the stream of their requests.
pub fn external_tools(
    specs: Vec<ToolSpec>,
    options: ExternalOptions,
) -> (Vec<Arc<dyn Tool>>, ExternalRequests) {
    let desk = Arc::new(Desk::new(options));
    let tools = specs
        .into_iter()
        .map(|spec| {
            let desk = Arc::clone(&desk);
            Arc::new(ExternalTool { spec, desk }) as Arc<dyn Tool>
        })
        .collect();
    (tools, ExternalRequests::new(desk))
}

#[derive(Debug)]
struct ExternalTool {
    spec: ToolSpec,
    desk: Arc<Desk>,
}

/// A call that waits for its answer. Dropping it removes the request.
struct Waiting {
    desk: Arc<Desk>,
    id: RequestId,
    scope: Scope,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Has no effect after an answer.
        self.desk.give_up(self.id, cause_of(&self.scope));
    }
}

fn cause_of(scope: &Scope) -> Cause {
    let dropped = || Cause::new(CauseKind::Parent).detail("its call was dropped");
    scope.cause().unwrap_or_else(dropped)
}

impl ExternalTool {
    async fn run(&self, invocation: ToolInvocation) -> Result<ToolOutput, ToolError> {
        let scope = invocation.scope;
        let told = |message: String| ToolError::new(message);
        // The request goes out only after the call is registered, so its id is set later.
        let asked: Arc<OnceLock<RequestId>> = Arc::default();
        let ask = {
            let (desk, asked, scope) = (Arc::clone(&self.desk), Arc::clone(&asked), scope.clone());
            move || {
                if let Some(id) = asked.get() {
                    desk.cancel(*id, cause_of(&scope));
                }
            }
        };
        let work =
            WorkSpec::new(ItemKind::Remote, Arc::clone(&self.spec.name)).effect(self.spec.effect);
        let registration = scope
            .register_remote(work, ask)
            .map_err(|refused| told(refused.to_string()))?;
        let request = ExternalRequest {
            request_id: RequestId(0),
            session_id: invocation.session_id,
            call_id: invocation.call_id,
            name: invocation.name,
            arguments: invocation.arguments,
            trace: invocation.trace,
            time_left: scope.time_left(),
        };
        let (id, answer) = match self.desk.ask(request, invocation.link) {
            Ok(asked) => asked,
            Err(refused) => {
                registration.finish(Ending::Returned);
                return Err(told(refused.to_string()));
            }
        };
        let _waiting = Waiting {
            desk: Arc::clone(&self.desk),
            id,
            scope: scope.clone(),
        };
        asked.get_or_init(|| id);
        if scope.is_stopped() {
            // The stop may have come before the id was set.
            self.desk.cancel(id, cause_of(&scope));
        }
        // The queue drops no reply without sending an end.
        let end = answer.await.unwrap_or(End::HandlerGone { taken: true });
        let (ending, answer) = match end {
            End::Answered(answer) => (Ending::Returned, answer),
            End::ConfirmedCancelled => (
                Ending::Stopped {
                    how: How::RemoteConfirmed,
                    evidence: Evidence::verified(Verified::RemoteConfirmed),
                },
                Err(told("the handler ended it without an answer".to_owned())),
            ),
            End::NeverTaken => (
                Ending::NotBegun,
                Err(told(
                    "the handler had not taken it: nothing was done".to_owned(),
                )),
            ),
            End::HandlerGone { taken } => {
                let ending = if taken && scope.is_stopped() {
                    Ending::NotConfirmed
                } else {
                    Ending::Returned
                };
                (ending, Err(told(self.gone(taken))))
            }
        };
        registration.finish(ending);
        answer
    }

    fn gone(&self, taken: bool) -> String {
        let done = match (taken, self.spec.effect) {
            (false, _) => "; it had not taken the call: nothing was done",
            (true, Effect::ReadOnly) => "",
            (true, _) => "; what it has done of the call is not known",
        };
        format!("the handler of this tool is gone{done}")
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
