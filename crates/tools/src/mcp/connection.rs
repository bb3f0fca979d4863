//! An established connection, and its calls.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_scope::{Ending, Registration, Scope, WorkSpec};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject, RequestMetaObject,
    ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use tokio::sync::{SetOnce, oneshot};
use tokio::time::timeout;

use super::calls::{Answer, Answered, Calls, NotBegun, confirmed};
use super::cancel::Cancel;
use super::config::OnIgnoredCancel;
use super::limits::{CALLS_MAX, CANCEL_SETTLE};
use crate::tool::{ToolError, ToolInvocation};

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: Arc<str>,
    pub(super) peer: Peer<RoleClient>,
    pub(super) calls: Arc<Calls>,
    pub(super) lost: Lost,
    pub(super) on_ignored_cancel: OnIgnoredCancel,
}

/// Reason for the end of a connection; the first one stands.
#[derive(Debug, Clone, Default)]
pub(super) struct Lost(Arc<SetOnce<Reason>>);

#[derive(Debug, Clone)]
pub(super) struct Reason {
    pub(super) why: Arc<str>,
    /// True if the other side ended the connection, false if this side gave it up.
    pub(super) by_itself: bool,
}

impl Lost {
    /// Records that the other side ended the connection.
    pub(super) fn by_itself(&self, why: &str) {
        self.set(why, true);
    }

    /// Records that this side gives up the connection.
    pub(super) fn given_up(&self, why: &str) {
        self.set(why, false);
    }

    fn set(&self, why: &str, by_itself: bool) {
        let why = why.into();
        // Fails if a reason was recorded before, which stands.
        drop(self.0.set(Reason { why, by_itself }));
    }

    pub(super) fn reason(&self) -> Option<&Reason> {
        self.0.get()
    }

    pub(super) async fn wait(&self) -> Reason {
        self.0.wait().await.clone()
    }
}

/// A sent request. Dropping it before its end cancels it.
struct Call<'a> {
    connection: &'a Connection,
    cancel: Arc<Cancel>,
    handle: RequestHandle<RoleClient>,
    /// True once the protocol library has resolved the handle.
    handle_spent: bool,
    answered: oneshot::Receiver<Answered>,
    over: bool,
}

impl Connection {
    /// Runs one call of a tool.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call at the server.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
        invocation: &ToolInvocation,
    ) -> Result<ServerResult, ToolError> {
        let scope = &invocation.scope;
        let cancel = Arc::new(Cancel::new(
            self.peer.clone(),
            Arc::clone(&self.calls.leaving),
        ));
        let registration = register(scope, tool, &cancel)?;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(
            CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments),
        ));
        let mut options = PeerRequestOptions::no_options();
        if let Some(trace) = &invocation.trace {
            let mut meta = RequestMetaObject::new();
            meta.set_traceparent(&**trace);
            options = options.with_meta(meta);
        }
        let link = invocation.link.clone();
        let begun = self
            .calls
            .begin(request, options, &cancel, link, registration);
        let (handle, answered) = begun.map_err(|refused| self.not_begun(refused))?;
        let mut call = Call {
            connection: self,
            cancel,
            handle,
            handle_spent: false,
            answered,
            over: false,
        };
        let answered = tokio::select! {
            biased;
            answered = call.answered() => answered?,
            () = scope.stopped() => call.after_stop(scope).await?,
        };
        call.over = true;
        conclude(answered, scope, self)
    }

    fn not_begun(&self, refused: NotBegun) -> ToolError {
        let server = &self.server;
        ToolError::new(match refused {
            NotBegun::Cancelled => "stopped before it was sent".to_owned(),
            NotBegun::Ending(why) => {
                format!("the server `{server}` is ending, since {why}; the call was not sent")
            }
            NotBegun::TooMany => format!(
                "{CALLS_MAX} calls of the server `{server}` are open; the call was not sent"
            ),
            NotBegun::Refused => {
                format!("the server `{server}` takes no more calls; the call was not sent")
            }
        })
    }

    /// Gives up the connection if no other call uses it. Returns true if it is ending.
    fn end_unless_used(&self) -> bool {
        const WHY: &str = "it went on with a call that was cancelled";
        let ends =
            self.on_ignored_cancel == OnIgnoredCancel::EndServer && self.calls.end_if_unused(WHY);
        if ends {
            self.lost.given_up(WHY);
        }
        ends
    }
}

fn register(scope: &Scope, tool: &str, cancel: &Arc<Cancel>) -> Result<Registration, ToolError> {
    let (asked, of) = (Arc::clone(cancel), scope.clone());
    let ask = move || asked.request(&reason(&of));
    let work = WorkSpec::new(ItemKind::Remote, tool);
    scope
        .register_remote(work, ask)
        .map_err(|refused| ToolError::new(refused.to_string()))
}

fn reason(scope: &Scope) -> String {
    scope
        .cause()
        .map_or_else(|| "stopped".to_owned(), |cause| cause.to_string())
}

impl Call<'_> {
    async fn answered(&mut self) -> Result<Answered, ToolError> {
        loop {
            tokio::select! {
                biased;
                answered = &mut self.answered => return answered.map_err(|_gone| self.failed("its connection is gone")),
                seen = &mut self.handle.rx, if !self.handle_spent => {
                    self.handle_spent = true;
                    // An answer is already in the table, and the end of the connection will be soon.
                    if let Ok(Err(ServiceError::TransportSend(error))) = seen {
                        let why = format!("it cannot be reached: {}", error.error);
                        // The server may still have received the call, and may be reached again.
                        self.cancel.request(&why);
                        self.connection.lost.by_itself(&why);
                        return Err(self.failed(&why));
                    }
                }
            }
        }
    }

    /// Waits a short time for the server's reply: the stop has already cancelled the call.
    async fn after_stop(&mut self, scope: &Scope) -> Result<Answered, ToolError> {
        // Has no effect if the stop has cancelled the call.
        self.cancel.request(&reason(scope));
        if let Ok(answered) = timeout(CANCEL_SETTLE, self.answered()).await {
            return answered;
        }
        if self.connection.end_unless_used() {
            return self.answered().await;
        }
        self.over = true;
        // The call's future acknowledges the stop; the server has not confirmed it.
        scope.stopped_at("mcp call").await;
        self.abandon();
        Err(ToolError::new(format!(
            "stopped: {}; {}, and may work on",
            reason(scope),
            self.unconfirmed()
        )))
    }

    fn unconfirmed(&self) -> String {
        let server = &self.connection.server;
        match self.connection.lost.reason() {
            Some(lost) => format!(
                "the server `{server}` was lost, since {}, before it had answered",
                lost.why
            ),
            None => format!("the server `{server}` has not answered to notifications/cancelled"),
        }
    }

    /// Removes the call from the table, with an unknown end.
    fn abandon(&self) {
        if let Some(mut registration) = self.connection.calls.take(&self.handle.id) {
            registration.details_mut().note = Some(self.unconfirmed().into());
            registration.finish(Ending::NotConfirmed);
        }
    }

    fn failed(&mut self, why: &str) -> ToolError {
        self.over = true;
        self.abandon();
        ToolError::outcome_unknown(format!(
            "the call of the server `{}` failed: {why}; whether it was carried out is not known",
            self.connection.server
        ))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if let Ok(answered) = self.answered.try_recv() {
            return answered.conclude();
        }
        self.cancel.request("the call was given up");
        // If the server is ended for this call, that is the call's end: its registration stays in the table until then.
        if !self.connection.end_unless_used() {
            self.abandon();
        }
    }
}

/// Reports the end of the call, and returns the server's result.
fn conclude(
    answered: Answered,
    scope: &Scope,
    connection: &Connection,
) -> Result<ServerResult, ToolError> {
    let Answered {
        answer,
        registration,
    } = answered;
    let server = &connection.server;
    match answer {
        Answer::Result(result) => {
            registration.finish(Ending::Returned);
            Ok(*result)
        }
        Answer::Error(error) => {
            confirmed(registration);
            if scope.is_stopped() {
                acknowledge(scope);
            }
            Err(ToolError::new(format!(
                "the server `{server}` answered with an error: {}",
                error.message
            )))
        }
        Answer::Ended(ended) => {
            ended.conclude(registration);
            acknowledge(scope);
            Err(ToolError::outcome_unknown(format!(
                "the server `{server}` ended during the call, since {}; whether it was carried out is not known",
                ended.why
            )))
        }
    }
}

/// Acknowledges the stop of a call; has no effect on other calls.
fn acknowledge(scope: &Scope) {
    use futures::FutureExt as _;
    drop(scope.stopped_at("mcp call").now_or_never());
}
