//! The supervisor of one MCP server: starts the server, waits for the end of the connection, and starts the server
//! again.

use std::sync::Arc;
use std::time::Duration;

use allstop_scope::{Scope, ScopeOptions, WorkCx};
use rmcp::service::{Peer, RoleClient};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::calls::OpenCalls;
use super::config::McpTransport;
use super::connection::Connection;
use super::connection_end::ConnectionEnd;
use super::connection_loss::{LossKind, LossReason};
use super::given_tokens::AskedReasons;
use super::handshake::{FirstRequest, Service, cancel_form, cancel_settle, over_http, over_pipes};
use super::interceptor::ConnectionSinks;
use super::limits::{
    CLOSE_WAIT, CONNECTION_GOOD_AFTER, RECONNECT_FIRST, RECONNECT_MAX, RECONNECT_TRIES_MAX,
};
use super::listing::{follow_changes, list};
use super::login::AccessTokens;
use super::pipes::ServerPipes;
use super::process::ServerProcess;
use super::server::McpServer;
use super::state::{ServerLifetime, ServerState};
use super::subscription::keep_subscribed;
use super::token_origin::TokenOrigin;

enum ConnectionAttempt {
    /// The server is stopped or closed.
    Over,
    /// The server's process ended before it answered the first request.
    NotDiscovered,
    /// The connection was lost or never established.
    Lost {
        why: Arc<str>,
        was_good: bool,
        /// True if the server refused the credentials.
        is_denied: bool,
    },
}

/// Runs until the server is closed or its scope is stopped.
pub(super) async fn supervise(server: Arc<McpServer>, cx: WorkCx) {
    let mut failed = 0;
    let mut first = FirstRequest::Discover;
    let mut asked = AskedReasons::new();
    let mut arrivals = server.tokens.as_ref().map(|tokens| tokens.arrivals());
    loop {
        server.state.send_replace(ServerState::Starting);
        match attempt(&server, cx.scope(), first).await {
            ConnectionAttempt::Over => break,
            ConnectionAttempt::NotDiscovered => first = FirstRequest::Initialize,
            // The system closes soon, so the server is not started again.
            ConnectionAttempt::Lost { .. }
                if *server.lifetime.borrow() > ServerLifetime::Kept && server.is_process() =>
            {
                break;
            }
            ConnectionAttempt::Lost {
                why,
                was_good,
                is_denied,
            } => {
                if was_good {
                    asked.clear();
                }
                if let Some(arrivals) = &mut arrivals {
                    // A handler that arrives during the request is asked, too.
                    arrivals.mark_unchanged();
                }
                if is_denied {
                    let is_replaced = tokio::select! {
                        is_replaced = replace_token(&server, &mut asked) => is_replaced,
                        () = end_requested(&server, cx.scope()) => break,
                    };
                    if is_replaced {
                        continue;
                    }
                }
                failed = if was_good { 1 } else { failed + 1 };
                tracing::warn!(server = %server.name(), %why, failed, "an MCP server is not available");
                let retries = failed < RECONNECT_TRIES_MAX && !is_denied;
                let next_try = retries.then(|| Instant::now() + pause(failed));
                server
                    .state
                    .send_replace(ServerState::Degraded { why, next_try });
                let pause = async {
                    if let Some(at) = next_try {
                        return sleep_until(at).await;
                    }
                    tokio::select! {
                        () = server.wake.notified() => {}
                        () = logged_in(&server) => {}
                        () = arrived(&mut arrivals) => {}
                    }
                };
                tokio::select! {
                    () = pause => asked.clear(),
                    () = end_requested(&server, cx.scope()) => break,
                }
            }
        }
    }
    if cx.scope().is_stopped() {
        cx.acknowledge("mcp server");
    }
    server.state.send_replace(ServerState::Stopped);
}

/// Asks for another token after a refusal. Returns true if the source has given one.
async fn replace_token(server: &McpServer, asked: &mut AskedReasons) -> bool {
    match &server.tokens {
        Some(tokens) => tokens.replace_refused(asked).await,
        None => false,
    }
}

/// Resolves when a handler has arrived that can give a token.
async fn arrived(arrivals: &mut Option<watch::Receiver<u64>>) {
    let is_lost = match arrivals {
        Some(arrivals) => arrivals.changed().await.is_err(),
        None => true,
    };
    if is_lost {
        std::future::pending::<()>().await;
    }
}

/// Resolves when the person has logged in at the server, in this process or in another one.
async fn logged_in(server: &McpServer) {
    match &server.login {
        Some(login) => login.changed().await,
        None => std::future::pending().await,
    }
}

/// Returns the pause after `failed` failed attempts in a row.
fn pause(failed: u32) -> Duration {
    let doubled = 1 << failed.saturating_sub(1).min(16);
    RECONNECT_MAX.min(RECONNECT_FIRST * doubled)
}

/// Resolves when the server must end.
async fn end_requested(server: &McpServer, scope: &Scope) {
    let mut lifetime = server.lifetime.subscribe();
    tokio::select! {
        biased;
        () = scope.stopped() => {}
        // The wait fails if all senders are gone. In that case, the server must end too.
        _ = lifetime.wait_for(|lifetime| *lifetime == ServerLifetime::Ending) => {}
    }
}

/// Runs one connection, from its start to its end.
async fn attempt(server: &Arc<McpServer>, scope: &Scope, first: FirstRequest) -> ConnectionAttempt {
    let sinks = ConnectionSinks::default();
    let not_established = |why: String| ConnectionAttempt::Lost {
        why: why.into(),
        was_good: false,
        is_denied: sinks.loss.denial().is_some(),
    };
    let Ok(scope) = scope.child("connection", ScopeOptions::default()) else {
        return ConnectionAttempt::Over;
    };
    let mut process = None;
    let mut pipes = None;
    if let McpTransport::Stdio { command, args, env } = &server.config.transport {
        let command = (command, args.as_slice(), env.as_slice());
        match ServerProcess::start(
            &scope,
            server.name(),
            command,
            &server.config.env_hidden,
            server
                .config
                .folder
                .as_ref()
                .unwrap_or(&server.options.folder),
            &server.options,
        ) {
            Ok((started, its)) => (process, pipes) = (Some(started), Some(its)),
            Err(why) => return not_established(why),
        }
    }
    let limit = server.config.handshake_timeout;
    let began = Instant::now();
    let established = tokio::select! {
        biased;
        () = end_requested(server, &scope) => {
            end(None, process.as_ref(), &sinks.calls, stopping()).await;
            return ConnectionAttempt::Over;
        }
        established = timeout(limit, establish(server, &scope, process.as_ref(), pipes, first, &sinks)) => established,
    };
    let established = established
        .unwrap_or_else(|_elapsed| Err(format!("it did not finish its handshake in {limit:?}")));
    let service = match established {
        Ok(service) => service,
        Err(why) => {
            let failure = LossReason {
                why: why.into(),
                kind: LossKind::ByUs,
            };
            let reason = sinks.loss.denial().cloned().unwrap_or(failure);
            let ended = end(None, process.as_ref(), &sinks.calls, reason).await;
            if process.is_some() && sinks.discovery_open.get() {
                return ConnectionAttempt::NotDiscovered;
            }
            return not_established(ended.why.to_string());
        }
    };
    if let Some(tokens) = &server.tokens {
        tokens.set_refused(None);
    }
    server
        .state
        .send_replace(ServerState::Ready(Arc::new(Connection {
            server: Arc::clone(server.name()),
            peer: service.peer().clone(),
            calls: Arc::clone(&sinks.calls),
            loss: sinks.loss.clone(),
            tokens: server.tokens.clone(),
            on_ignored_cancel: server.config.on_ignored_cancel,
            cancel_form: cancel_form(service.peer(), server.is_process()),
            cancel_settle: cancel_settle(service.peer()),
            lifetime: server.is_process().then(|| server.lifetime.subscribe()),
        })));
    let reason = tokio::select! {
        biased;
        () = end_requested(server, &scope) => None,
        reason = sinks.loss.wait() => Some(reason),
        never = follow_changes(server, service.peer(), &sinks.list_changed) => match never {},
        never = keep_subscribed(server, service.peer(), &sinks.list_changed) => match never {},
    };
    let Some(reason) = reason else {
        if process.is_none() {
            cancel_calls(service.peer(), &sinks.calls).await;
        }
        end(Some(service), process.as_ref(), &sinks.calls, stopping()).await;
        return ConnectionAttempt::Over;
    };
    // New calls wait for the next connection from now on.
    server.state.send_replace(ServerState::Starting);
    let ended = end(Some(service), process.as_ref(), &sinks.calls, reason).await;
    ConnectionAttempt::Lost {
        why: Arc::clone(&ended.why),
        was_good: began.elapsed() >= CONNECTION_GOOD_AFTER,
        is_denied: sinks.loss.denial().is_some(),
    }
}

fn stopping() -> LossReason {
    LossReason {
        why: "it is being stopped".into(),
        kind: LossKind::ByUs,
    }
}

/// Cancels the open calls of a server without a process here, and gives the server time to answer them.
async fn cancel_calls(peer: &Peer<RoleClient>, calls: &OpenCalls) {
    let LossReason { why, .. } = stopping();
    calls.refuse(&why);
    drop(timeout(CLOSE_WAIT, calls.cancel_all(&why)).await);
    drop(timeout(cancel_settle(peer), calls.all_ended()).await);
}

async fn establish(
    server: &McpServer,
    scope: &Scope,
    process: Option<&ServerProcess>,
    pipes: Option<ServerPipes>,
    first: FirstRequest,
    sinks: &ConnectionSinks,
) -> Result<Service, String> {
    let sinks = sinks.clone();
    let service = match (&server.config.transport, process, pipes) {
        (McpTransport::Http { url, headers }, ..) => {
            let access = match (&server.tokens, &server.login) {
                (Some(tokens), _) => TokenOrigin::Given(Arc::clone(tokens)),
                (None, Some(login)) => TokenOrigin::Login(AccessTokens {
                    login: Arc::clone(login),
                    scope: scope.clone(),
                }),
                (None, None) => TokenOrigin::Configured,
            };
            over_http(server.name(), url, headers, access, sinks).await?
        }
        (_, Some(process), Some(pipes)) => {
            let ends = tokio::select! {
                ends = pipes.opened(process.exit(), sinks.loss.clone()) => ends.map_err(|error| format!("its pipes failed: {error}"))?,
                () = process.exited() => return Err("it exited during its start".to_owned()),
            };
            over_pipes(ends, first, sinks).await?
        }
        _ => return Err("it has no process".to_owned()),
    };
    list(server, service.peer()).await?;
    Ok(service)
}

/// Ends a connection, and answers the open calls of the connection.
async fn end(
    service: Option<Service>,
    process: Option<&ServerProcess>,
    calls: &OpenCalls,
    reason: LossReason,
) -> Arc<ConnectionEnd> {
    let by_server = reason.kind == LossKind::ByServer;
    calls.refuse(&reason.why);
    let mut ended = ConnectionEnd {
        why: reason.why,
        process: None,
    };
    if let Some(process) = process {
        ended.process = process.end(&ended.why, by_server).await;
        if (by_server || service.is_none())
            && let Some(words) = process.last_words().await
        {
            ended.why = format!("{} ({words})", ended.why).into();
        }
    }
    if process.is_none() {
        // A server without a process here still runs after the end of the connection. It may still run the calls, so
        // they are cancelled.
        drop(timeout(CLOSE_WAIT, calls.cancel_all(&ended.why)).await);
    }
    if let Some(mut service) = service {
        // Dropping the service ends its loop if the close takes too long.
        drop(service.close_with_timeout(CLOSE_WAIT).await);
    }
    let ended = Arc::new(ended);
    calls.close(&ended);
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        assert_eq!(pause(1), RECONNECT_FIRST);
        assert_eq!(pause(2), 2 * RECONNECT_FIRST);
        assert_eq!(pause(7), RECONNECT_MAX);
        assert_eq!(pause(u32::MAX), RECONNECT_MAX);
    }
}
