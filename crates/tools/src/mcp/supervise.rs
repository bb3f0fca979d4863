//! The supervisor of one server: starts it, waits for its end, and retries.

use std::sync::Arc;
use std::time::Duration;

use allstop_scope::{Scope, ScopeOptions, WorkCx};
use tokio::time::{Instant, sleep_until, timeout};

use super::calls::Calls;
use super::config::McpTransport;
use super::connection::{Connection, Reason};
use super::ended::Ended;
use super::handshake::{Service, over_http, over_pipes};
use super::limits::{
    CLOSE_WAIT, CONNECTION_GOOD_AFTER, RECONNECT_FIRST, RECONNECT_MAX, RECONNECT_TRIES_MAX,
};
use super::listing::{follow, list};
use super::pipes::Pipes;
use super::process::ServerProcess;
use super::server::McpServer;
use super::state::Known;
use super::tap::Heard;

enum Attempt {
    /// The server is stopped or closed.
    Over,
    /// The connection was lost or never established.
    Lost { why: Arc<str>, was_good: bool },
}

/// Runs until the server is closed or its scope is stopped.
pub(super) async fn supervise(server: Arc<McpServer>, cx: WorkCx) {
    let mut failed = 0;
    loop {
        server.known.send_replace(Known::Starting);
        match attempt(&server, cx.scope()).await {
            Attempt::Over => break,
            Attempt::Lost { why, was_good } => {
                failed = if was_good { 1 } else { failed + 1 };
                tracing::warn!(server = %server.name(), %why, failed, "an MCP server is not available");
                let next_try =
                    (failed < RECONNECT_TRIES_MAX).then(|| Instant::now() + pause(failed));
                server.known.send_replace(Known::Degraded { why, next_try });
                let pause = async {
                    match next_try {
                        Some(at) => sleep_until(at).await,
                        None => server.wake.notified().await,
                    }
                };
                tokio::select! {
                    () = pause => {}
                    () = over(&server, cx.scope()) => break,
                }
            }
        }
    }
    if cx.scope().is_stopped() {
        cx.acknowledge("mcp server");
    }
    server.known.send_replace(Known::Stopped);
}

/// Pause after `failed` attempts in a row.
fn pause(failed: u32) -> Duration {
    let doubled = 1 << failed.saturating_sub(1).min(16);
    RECONNECT_MAX.min(RECONNECT_FIRST * doubled)
}

/// Resolves when the server has to end.
async fn over(server: &McpServer, scope: &Scope) {
    let mut closing = server.closing.subscribe();
    tokio::select! {
        biased;
        () = scope.stopped() => {}
        // Fails if all senders are gone, which also ends the server.
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

/// Runs one connection, from its start to its end.
async fn attempt(server: &Arc<McpServer>, scope: &Scope) -> Attempt {
    let heard = Heard::default();
    let never = |why: String| Attempt::Lost {
        why: why.into(),
        was_good: false,
    };
    let Ok(scope) = scope.child("connection", ScopeOptions::default()) else {
        return Attempt::Over;
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
            &server.options,
        ) {
            Ok((started, its)) => (process, pipes) = (Some(started), Some(its)),
            Err(why) => return never(why),
        }
    }
    let limit = server.config.handshake_timeout;
    let began = Instant::now();
    let established = tokio::select! {
        biased;
        () = over(server, &scope) => {
            end(None, process.as_ref(), &heard.calls, stopping()).await;
            return Attempt::Over;
        }
        established = timeout(limit, establish(server, process.as_ref(), pipes, &heard)) => established,
    };
    let established = established
        .unwrap_or_else(|_elapsed| Err(format!("it did not finish its handshake in {limit:?}")));
    let service = match established {
        Ok(service) => service,
        Err(why) => {
            let why = Reason {
                why: why.into(),
                by_itself: false,
            };
            let ended = end(None, process.as_ref(), &heard.calls, why).await;
            return never(ended.why.to_string());
        }
    };
    server.known.send_replace(Known::Ready(Arc::new(Connection {
        server: Arc::clone(server.name()),
        peer: service.peer().clone(),
        calls: Arc::clone(&heard.calls),
        lost: heard.lost.clone(),
        on_ignored_cancel: server.config.on_ignored_cancel,
    })));
    let reason = tokio::select! {
        biased;
        () = over(server, &scope) => None,
        reason = heard.lost.wait() => Some(reason),
        never = follow(server, service.peer(), &heard.list_changed) => match never {},
    };
    let Some(reason) = reason else {
        end(Some(service), process.as_ref(), &heard.calls, stopping()).await;
        return Attempt::Over;
    };
    // New calls wait for the next connection from now on.
    server.known.send_replace(Known::Starting);
    let ended = end(Some(service), process.as_ref(), &heard.calls, reason).await;
    Attempt::Lost {
        why: Arc::clone(&ended.why),
        was_good: began.elapsed() >= CONNECTION_GOOD_AFTER,
    }
}

fn stopping() -> Reason {
    Reason {
        why: "it is being stopped".into(),
        by_itself: false,
    }
}

async fn establish(
    server: &McpServer,
    process: Option<&ServerProcess>,
    pipes: Option<Pipes>,
    heard: &Heard,
) -> Result<Service, String> {
    let heard = heard.clone();
    let service = match (&server.config.transport, process, pipes) {
        (McpTransport::Http { url, headers }, ..) => over_http(url, headers, heard).await?,
        (_, Some(process), Some(pipes)) => {
            let ends = tokio::select! {
                ends = pipes.opened(heard.lost.clone()) => ends.map_err(|error| format!("its pipes failed: {error}"))?,
                () = process.exited() => return Err("it exited at its start".to_owned()),
            };
            over_pipes(ends, heard).await?
        }
        _ => return Err("it has no process".to_owned()),
    };
    list(server, service.peer()).await?;
    Ok(service)
}

/// Ends a connection, and answers its open calls.
async fn end(
    service: Option<Service>,
    process: Option<&ServerProcess>,
    calls: &Calls,
    reason: Reason,
) -> Arc<Ended> {
    calls.refuse(&reason.why);
    let mut ended = Ended {
        why: reason.why,
        process: None,
    };
    if let Some(process) = process {
        ended.process = process.end(&ended.why, reason.by_itself).await;
        if (reason.by_itself || service.is_none())
            && let Some(words) = process.last_words().await
        {
            ended.why = format!("{} ({words})", ended.why).into();
        }
    }
    if process.is_none() {
        // The server outlives the connection, and may still run the calls.
        drop(timeout(CLOSE_WAIT, calls.cancel_all(&ended.why)).await);
    }
    if let Some(mut service) = service {
        // Its drop ends the rest.
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
