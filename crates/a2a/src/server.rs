//! Connections of the server. Each connection is work of a scope, which can be stopped as a whole. A stop of the server
//! therefore ends the connections, and lists them in the receipt of the stop.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_host::{Place, PlaceLimits, Places, accept_connections};
use allstop_scope::{Scope, WorkCx, WorkSpec};
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::connection_activity::{ConnectionActivity, count_request};
use crate::tls::ServerTls;
use crate::unread_body::answer_whole_request;

/// Limits of a server's connections.
pub const PLACE_LIMITS: PlaceLimits =
    PlaceLimits::of_connections(CONNECTIONS_MAX).unproven_max(UNPROVEN_MAX);

/// Maximum number of connections. Each connection and its task need two descriptors, so 40,000 in total. The usual limit
/// is 65,536.
const CONNECTIONS_MAX: usize = 20_000;

/// Maximum number of connections that have had no admitted request: enough for the clients that connect at the same
/// moment. Without a limit, connections without a token could take all places for the time of a head.
const UNPROVEN_MAX: usize = 1_000;

/// Maximum number of concurrent requests of an HTTP/2 connection. The specification recommends at least 100 (RFC 9113,
/// section 6.5.2).
const STREAMS_MAX: u32 = 100;

/// Options of a server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Places for the connections. Several listeners of a server may share them.
    pub places: Places,
    /// Maximum time for a TLS handshake, and for the head of a request. The time starts when the connection opens, or
    /// when the previous request ends.
    pub head_time_max: Duration,
    /// Maximum size of the head of a request, in bytes.
    pub head_bytes_max: usize,
    /// Maximum idle time of an HTTP/2 connection. The server then asks the client to close the connection; the client
    /// opens another connection when necessary.
    pub idle_time_max: Duration,
    /// TLS options; `None` for connections without TLS.
    pub tls: Option<ServerTls>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            places: Places::new(PLACE_LIMITS),
            head_time_max: Duration::from_secs(30),
            head_bytes_max: 32 * 1024,
            // This time is longer than the keep-alive time of usual clients and proxies, so that the time limits of the
            // clients and proxies apply first.
            idle_time_max: Duration::from_mins(5),
            tls: None,
        }
    }
}

impl ServerOptions {
    /// Sets the places for the connections.
    #[must_use]
    pub fn places(mut self, places: Places) -> Self {
        self.places = places;
        self
    }

    /// Sets the maximum time for a TLS handshake, and for the head of a request.
    #[must_use]
    pub fn head_time_max(mut self, head_time_max: Duration) -> Self {
        self.head_time_max = head_time_max;
        self
    }

    /// Sets the maximum idle time of an HTTP/2 connection.
    #[must_use]
    pub fn idle_time_max(mut self, idle_time_max: Duration) -> Self {
        self.idle_time_max = idle_time_max;
        self
    }

    /// Sets the TLS options.
    #[must_use]
    pub fn tls(mut self, tls: impl Into<Option<ServerTls>>) -> Self {
        self.tls = tls.into();
        self
    }
}

/// Serves connections until a stop covers `scope`. Then accepts no more connections, and each connection ends after its
/// current response.
///
/// # Cancel safety
/// Dropping the future only stops accepting; existing connections continue in their scope.
pub async fn serve(listener: TcpListener, router: Router, scope: Scope, options: ServerOptions) {
    let (connections, options) = (scope.clone(), Arc::new(options));
    let places = options.places.clone();
    let serve_one = move |stream, cx, place| {
        let (router, options) = (router.clone(), Arc::clone(&options));
        serve_stream(stream, router, connections.clone(), cx, place, options)
    };
    accept_connections(listener, scope, places, serve_one).await;
}

async fn serve_stream(
    stream: TcpStream,
    router: Router,
    scope: Scope,
    cx: WorkCx,
    place: Place,
    options: Arc<ServerOptions>,
) {
    let Some(tls) = &options.tls else {
        return serve_connection(stream, router, scope, cx, place, &options).await;
    };
    let handshake = timeout(options.head_time_max, tls.acceptor().accept(stream));
    let shaken = tokio::select! {
        biased;
        _cause = cx.stopped_at("TLS handshake") => return,
        shaken = handshake => shaken,
    };
    match shaken {
        Ok(Ok(stream)) => serve_connection(stream, router, scope, cx, place, &options).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_elapsed) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    scope: Scope,
    cx: WorkCx,
    place: Place,
    options: &ServerOptions,
) {
    let mut builder = Builder::new(ScopeExecutor(scope));
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_time_max)
        .max_buf_size(options.head_bytes_max.max(8 * 1024))
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(options.head_time_max)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(options.head_bytes_max).unwrap_or(u32::MAX));
    let activity = ConnectionActivity::new(place.clone());
    let router = router
        .layer(from_fn(answer_whole_request))
        .layer(from_fn_with_state(activity.clone(), count_request));
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return log_end(ended),
        // The library waits without a time limit for the first bytes, from which it determines the HTTP version.
        () = activity.no_request_within(options.head_time_max) => return,
        () = place.stalled() => return tracing::debug!("a client does not take its response"),
        // Without this limit, a client that only answers HTTP/2 pings would stay connected forever.
        () = activity.idle_for(options.idle_time_max) => connection.as_mut().graceful_shutdown(),
        _cause = cx.stopped_at("connection") => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        ended = connection => log_end(ended),
        () = place.stalled() => tracing::debug!("a client does not take its response"),
    }
}

fn log_end(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended");
    }
}

/// Runs the streams of an HTTP/2 connection in the scope of the connection.
#[derive(Clone)]
struct ScopeExecutor(Scope);

impl<F> Executor<F> for ScopeExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let spec = WorkSpec::new(ItemKind::Future, "stream of a connection");
        // After a stop, the scope refuses new streams. The client then receives the end of its connection.
        drop(self.0.spawn(spec, |_cx| stream));
    }
}
