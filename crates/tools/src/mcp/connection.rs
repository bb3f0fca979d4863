//! An established connection to an MCP server, and its calls.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_scope::{Ending, Registration, Scope, WorkSpec};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject, MetaObject,
    RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::call_answer::{AnsweredCall, CallAnswer, confirmed, not_confirmed, task_cancelled};
use super::call_task::follow;
use super::call_token::{CallRequestError, replace_token};
use super::calls::{BegunCall, CallChannels, CallRefused, OpenCalls};
use super::cancellation::{CallCancellation, CancelForm};
use super::config::OnIgnoredCancel;
use super::connection_loss::{ConnectionLoss, is_connection_lost};
use super::elicitation::{QUESTIONS_WAITING_MAX, ask_all};
use super::given_tokens::{AskedReasons, GivenTokens};
use super::input_round::answers;
use super::limits::{CALLS_MAX, CANCEL_SETTLE_BEFORE_CLOSE, PROGRESS_INTERVAL, ROUNDS_MAX};
use super::mcp_task::{McpTask, RequestedTask};
use super::required_pages::RequiredPages;
use super::state::ServerLifetime;
use super::url_query::without_queries;
use crate::call_link::CallLink;
use crate::call_progress::CallProgress;
use crate::mcp_meta::McpMeta;
use crate::tool::{ToolError, ToolInvocation};

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: Arc<str>,
    pub(super) peer: Peer<RoleClient>,
    pub(super) calls: Arc<OpenCalls>,
    pub(super) loss: ConnectionLoss,
    /// `None` if no source gives tokens to the server.
    pub(super) tokens: Option<Arc<GivenTokens>>,
    pub(super) on_ignored_cancel: OnIgnoredCancel,
    pub(super) cancel_form: CancelForm,
    /// Time that a stop waits for the answer to a cancelled call.
    pub(super) cancel_settle: Duration,
    /// `None` if the server is not a process that Allstop started. The end of such a connection proves nothing about a
    /// call.
    pub(super) lifetime: Option<watch::Receiver<ServerLifetime>>,
}

/// A request that was sent. Dropping this value before the end of the request cancels the request.
struct SentCall<'a> {
    connection: &'a Connection,
    invocation: &'a ToolInvocation,
    cancel: Arc<CallCancellation>,
    handle: RequestHandle<RoleClient>,
    /// True after the protocol library has resolved the handle.
    handle_spent: bool,
    answered: oneshot::Receiver<AnsweredCall>,
    /// `None` after the server has continued the call as a task.
    continued: Option<oneshot::Receiver<McpTask>>,
    /// Follows the task that continues the call.
    following: Option<BoxFuture<'a, String>>,
    ended: bool,
}

impl Connection {
    /// Runs one call of a tool. A server that needs information first gets several requests. `task` is the task that the
    /// tool requires, if any.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call at the server.
    pub(super) async fn call(
        &self,
        mut params: CallToolRequestParams,
        task: Option<RequestedTask>,
        invocation: &ToolInvocation,
    ) -> Result<ServerResult, ToolError> {
        let mut asked = AskedReasons::new();
        let mut has_visited_pages = false;
        for _ in 0..ROUNDS_MAX {
            let required = match self.request(params.clone(), task, invocation).await {
                Ok(ServerResult::InputRequiredResult(required)) => required,
                Ok(result) => return Ok(result),
                Err(CallRequestError::Failed(error)) => return Err(error),
                Err(CallRequestError::NeedsToken(refused)) => {
                    let tokens = self.tokens.as_deref();
                    replace_token(tokens, &refused, &mut asked, invocation).await?;
                    continue;
                }
                Err(CallRequestError::NeedsPages(pages)) => {
                    // The server decides whether the visit was enough. A second error would ask the person again.
                    if has_visited_pages || !self.visit(&pages, invocation).await? {
                        return Err(pages.error(&self.server));
                    }
                    has_visited_pages = true;
                    continue;
                }
            };
            // No request is open now, so a stop leaves nothing at the server.
            let answers = tokio::select! {
                biased;
                cause = invocation.scope.stopped_at("mcp question") => {
                    return Err(ToolError::new(format!("stopped: {cause}")));
                }
                answers = answers(required.input_requests.unwrap_or_default(), &self.server, invocation) => answers?,
            };
            params.input_responses = (!answers.is_empty()).then_some(answers);
            params.request_state = required.request_state;
        }
        Err(ToolError::new(format!(
            "the server `{}` asked for more information {ROUNDS_MAX} times; the call was given up",
            self.server
        )))
    }

    /// Asks the person to visit pages. No request is open meanwhile.
    async fn visit(
        &self,
        pages: &RequiredPages,
        invocation: &ToolInvocation,
    ) -> Result<bool, ToolError> {
        tokio::select! {
            biased;
            cause = invocation.scope.stopped_at("mcp question") => {
                Err(ToolError::new(format!("stopped: {cause}")))
            }
            visited = pages.visit(&self.server, invocation) => Ok(visited),
        }
    }

    /// Sends one request, and waits for its answer, or for the end of the task that continues it.
    async fn request(
        &self,
        params: CallToolRequestParams,
        task: Option<RequestedTask>,
        invocation: &ToolInvocation,
    ) -> Result<ServerResult, CallRequestError> {
        let scope = &invocation.scope;
        let cancel = Arc::new(CallCancellation::new(
            self.peer.clone(),
            self.cancel_form,
            Arc::clone(&self.calls.unsent),
        ));
        let registration = register(scope, &params.name, &cancel)?;
        let request = match task {
            Some(task) => task.request(&params),
            None => ClientRequest::CallToolRequest(CallToolRequest::new(params)),
        };
        let mut options = PeerRequestOptions::no_options();
        if let Some(meta) = meta_of(invocation) {
            options = options.with_meta(meta);
        }
        let (progress, latest) = watch::channel(None);
        let (questions, asked) = mpsc::channel(QUESTIONS_WAITING_MAX);
        let channels = CallChannels {
            progress,
            questions,
        };
        let begun = self
            .calls
            .begin(request, options, &cancel, channels, registration);
        let BegunCall {
            handle,
            continued,
            answered,
        } = begun.map_err(|refused| self.refused_error(refused))?;
        let mut call = SentCall {
            connection: self,
            invocation,
            cancel,
            handle,
            handle_spent: false,
            answered,
            continued: Some(continued),
            following: None,
            ended: false,
        };
        let answered = tokio::select! {
            biased;
            answered = call.answered() => answered?,
            () = scope.stopped() => call.after_stop(scope).await?,
            never = show_progress(latest, &invocation.link) => match never {},
            never = ask_all(asked, &self.server, invocation) => match never {},
        };
        call.ended = true;
        conclude(answered, scope, self)
    }

    fn refused_error(&self, refused: CallRefused) -> ToolError {
        let server = &self.server;
        ToolError::new(match refused {
            CallRefused::Cancelled => "stopped before the call was sent".to_owned(),
            CallRefused::Ending(why) => {
                format!("the server `{server}` is ending because {why}; the call was not sent")
            }
            CallRefused::TooMany => format!(
                "the server `{server}` already has {CALLS_MAX} open calls; the call was not sent"
            ),
            CallRefused::Refused => {
                format!("the server `{server}` accepts no more calls; the call was not sent")
            }
        })
    }

    /// Resolves when a cancelled call has had enough time for an answer, if the system closes soon.
    async fn before_close(&self) {
        self.ends_with_call().await;
        sleep(CANCEL_SETTLE_BEFORE_CLOSE).await;
    }

    /// Resolves when a cancelled call may end the server, because the system closes soon.
    async fn ends_with_call(&self) {
        let Some(mut lifetime) = self.lifetime.clone() else {
            return std::future::pending().await;
        };
        // The wait fails if the server is gone, and then the connection ends too.
        drop(
            lifetime
                .wait_for(|lifetime| *lifetime > ServerLifetime::Kept)
                .await,
        );
    }

    /// True if the server is a process that is being ended, because its connection is lost.
    fn is_process_lost(&self) -> bool {
        self.lifetime.is_some() && self.loss.reason().is_some()
    }

    /// Ends the connection if the configuration or a close of the system demands it, and no other call uses the
    /// connection. Returns true if the connection is now ending.
    fn end_unless_used(&self) -> bool {
        const WHY: &str = "it continued a cancelled call";
        let is_closing = self.ends_with_call().now_or_never().is_some();
        let is_wanted = is_closing || self.on_ignored_cancel == OnIgnoredCancel::EndServer;
        let ends = is_wanted && self.calls.end_if_unused(WHY);
        if ends {
            self.loss.by_us(WHY);
        }
        ends
    }
}

/// Shows the latest progress at each interval, until the end of the call.
async fn show_progress(
    mut latest: watch::Receiver<Option<CallProgress>>,
    link: &CallLink,
) -> Infallible {
    while latest.changed().await.is_ok() {
        let progress = latest.borrow_and_update().clone();
        if let Some(progress) = progress {
            link.progress(&progress);
        }
        sleep(PROGRESS_INTERVAL).await;
    }
    // The call has left the table, and its answer follows.
    std::future::pending().await
}

fn register(
    scope: &Scope,
    tool: &str,
    cancel: &Arc<CallCancellation>,
) -> Result<Registration, ToolError> {
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

/// Waits for the task that continues a call.
async fn created(continued: &mut Option<oneshot::Receiver<McpTask>>) -> McpTask {
    let task = match continued {
        Some(receiver) => receiver.await.ok(),
        None => None,
    };
    *continued = None;
    match task {
        Some(task) => task,
        None => std::future::pending().await,
    }
}

/// Waits until a task can no longer be followed.
async fn followed(following: &mut Option<BoxFuture<'_, String>>) -> String {
    match following {
        Some(following) => following.await,
        None => std::future::pending().await,
    }
}

impl SentCall<'_> {
    async fn answered(&mut self) -> Result<AnsweredCall, ToolError> {
        loop {
            tokio::select! {
                biased;
                answered = &mut self.answered => return answered.map_err(|_gone| self.failed("its connection was lost")),
                task = created(&mut self.continued) => {
                    let call = self.handle.id.clone();
                    self.following = Some(follow(self.connection, call, task, self.invocation).boxed());
                }
                why = followed(&mut self.following) => {
                    self.cancel.request(&why);
                    return Err(self.failed(&why));
                }
                seen = &mut self.handle.rx, if !self.handle_spent => {
                    self.handle_spent = true;
                    // Only a failure to send is handled here. In all other cases the table of open calls already has
                    // the answer, or soon receives the end of the connection.
                    if let Ok(Err(ServiceError::TransportSend(error))) = seen {
                        let loss = &self.connection.loss;
                        let is_lost = is_connection_lost(&*error.error);
                        let failure = || {
                            let failure = without_queries(&error.error.to_string());
                            let before = if is_lost { "it cannot be reached: " } else { "" };
                            format!("{before}{failure}")
                        };
                        let why = loss.denial().map_or_else(failure, |denial| denial.why.to_string());
                        // A cancellation is requested, because the server may have received the call and may become
                        // reachable again.
                        self.cancel.request(&why);
                        if is_lost {
                            loss.by_server(&why);
                        }
                        return Err(self.failed(&why));
                    }
                }
            }
        }
    }

    /// Waits a short time for the server's reply, after the stop has cancelled the call.
    async fn after_stop(&mut self, scope: &Scope) -> Result<AnsweredCall, ToolError> {
        // This request has no effect if the stop has already cancelled the call.
        self.cancel.request(&reason(scope));
        let connection = self.connection;
        let settled_at = Instant::now() + connection.cancel_settle;
        tokio::select! {
            biased;
            answered = self.answered() => return answered,
            () = connection.before_close() => {}
            () = sleep_until(settled_at) => {}
        }
        // If another call needs the server, the stop of that call may follow, and then end the server.
        if !connection.end_unless_used()
            && let Ok(answered) = timeout_at(settled_at, self.answered()).await
        {
            return answered;
        }
        // The end of a lost process has short time limits, and proves the end of the call.
        if connection.is_process_lost() || connection.end_unless_used() {
            return self.answered().await;
        }
        self.ended = true;
        // The future of the call acknowledges the stop, although the server has not confirmed the cancellation.
        scope.stopped_at("mcp call").await;
        self.abandon();
        Err(ToolError::new(format!(
            "stopped: {}; {}; the call may still be running",
            reason(scope),
            self.unconfirmed()
        )))
    }

    fn unconfirmed(&self) -> String {
        let server = &self.connection.server;
        match self.connection.loss.reason() {
            Some(loss) => format!(
                "the server `{server}` was lost before it answered: {}",
                loss.why
            ),
            None if self.following.is_some() => {
                format!("the server `{server}` has not ended its task after tasks/cancel")
            }
            None => format!("the server `{server}` has not answered notifications/cancelled"),
        }
    }

    /// Removes the call from the table, and reports that the end of the call is unknown.
    fn abandon(&self) {
        self.cancel.close_response(&self.handle.id);
        if let Some(registration) = self.connection.calls.take(&self.handle.id) {
            not_confirmed(registration, &self.unconfirmed());
        }
    }

    fn failed(&mut self, why: &str) -> ToolError {
        self.ended = true;
        self.abandon();
        ToolError::outcome_unknown(format!(
            "the call to the server `{}` failed: {why}; its outcome is unknown",
            self.connection.server
        ))
    }
}

impl Drop for SentCall<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Ok(answered) = self.answered.try_recv() {
            return answered.conclude();
        }
        self.cancel.request("the call was abandoned");
        // If the server is ended because of this call, the end of the server ends the call. The registration of the
        // call stays in the table until then.
        if !self.connection.end_unless_used() {
            self.abandon();
        }
    }
}

/// Reports the end of the call, and returns the server's result.
/// Returns the metadata of the request for this call. `None` if the call has no metadata.
fn meta_of(invocation: &ToolInvocation) -> Option<RequestMetaObject> {
    match &invocation.mcp_meta {
        McpMeta::Empty => None,
        McpMeta::Fields(fields) => Some(RequestMetaObject(MetaObject(JsonObject::clone(fields)))),
        McpMeta::Trace => {
            let trace = invocation.trace.as_ref()?;
            let mut meta = RequestMetaObject::new();
            meta.set_traceparent(trace.traceparent());
            if let Some(state) = trace.tracestate() {
                meta.set_tracestate(state);
            }
            if let Some(baggage) = trace.baggage() {
                meta.set_baggage(baggage);
            }
            Some(meta)
        }
    }
}

fn conclude(
    answered: AnsweredCall,
    scope: &Scope,
    connection: &Connection,
) -> Result<ServerResult, CallRequestError> {
    let AnsweredCall {
        answer,
        registration,
    } = answered;
    let server = &connection.server;
    match answer {
        CallAnswer::Result(result) => {
            registration.finish(Ending::Returned);
            Ok(*result)
        }
        CallAnswer::Error(error) => {
            confirmed(registration);
            if scope.is_stopped() {
                acknowledge(scope);
            } else if let Some(pages) = RequiredPages::of(&error) {
                return Err(CallRequestError::NeedsPages(pages));
            }
            Err(CallRequestError::Failed(ToolError::new(format!(
                "the server `{server}` answered with an error: {}",
                error.message
            ))))
        }
        CallAnswer::NeedsToken(refused) => {
            confirmed(registration);
            Err(CallRequestError::NeedsToken(refused))
        }
        CallAnswer::Refused(why) => {
            confirmed(registration);
            if scope.is_stopped() {
                acknowledge(scope);
            }
            Err(CallRequestError::Failed(ToolError::new(format!(
                "the server `{server}` refused the call: {why}"
            ))))
        }
        CallAnswer::Cancelled => {
            task_cancelled(registration);
            acknowledge(scope);
            Err(CallRequestError::Failed(ToolError::new(format!(
                "the server `{server}` has cancelled the call"
            ))))
        }
        CallAnswer::Unreadable(why) => {
            registration.finish(Ending::Returned);
            Err(CallRequestError::Failed(ToolError::new(format!(
                "the call has ended, but the answer of the server `{server}` cannot be read: {why}"
            ))))
        }
        CallAnswer::Cut(why) => {
            not_confirmed(registration, &why);
            acknowledge(scope);
            Err(CallRequestError::Failed(ToolError::outcome_unknown(
                format!("the call to the server `{server}` failed: {why}; its outcome is unknown"),
            )))
        }
        CallAnswer::Ended(ended) => {
            ended.conclude(registration);
            acknowledge(scope);
            Err(CallRequestError::Failed(ToolError::outcome_unknown(
                format!(
                    "the server `{server}` ended during the call because {}; the outcome of the call is unknown",
                    ended.why
                ),
            )))
        }
    }
}

/// Acknowledges the stop of a call. Has no effect without a stop.
fn acknowledge(scope: &Scope) {
    drop(scope.stopped_at("mcp call").now_or_never());
}
