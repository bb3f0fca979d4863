//! From a configured server to a connection that is up, with the list of its tools.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, Tool};
use rmcp::serve_client;
use rmcp::service::{ClientInitializeError, Peer, RoleClient, RunningService, ServiceError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};

use super::calls::Calls;
use super::connection::Lost;
use super::limits::{CALLS_MAX, MESSAGE_BYTES_MAX, PAGES_MAX, TOOLS_MAX};
use super::pipes::{Input, Output};
use super::tap::Tap;

/// The protocol's own loop of a connection. Its drop ends the loop.
pub(super) type Service = RunningService<RoleClient, ClientConfig>;

/// Speaks with a server over the pipes to it.
pub(super) async fn over_pipes(
    (output, input): (Output, Input),
    calls: Arc<Calls>,
    lost: Lost,
) -> Result<Service, String> {
    let lines = AsyncRwTransport::new_client(output, input).with_max_line_length(MESSAGE_BYTES_MAX);
    serve(Tap::in_order(lines, calls, lost)).await
}

/// Speaks with a server over HTTP.
pub(super) async fn over_http(
    url: &str,
    headers: &[(String, String)],
    calls: Arc<Calls>,
    lost: Lost,
) -> Result<Service, String> {
    let mut named = HashMap::new();
    for (name, value) in headers {
        let wrong = |_| format!("the header {name:?} cannot be sent");
        let header =
            HeaderName::try_from(name.as_str()).map_err(|error| wrong(error.to_string()))?;
        let mut value =
            HeaderValue::try_from(value.as_str()).map_err(|error| wrong(error.to_string()))?;
        value.set_sensitive(true);
        named.insert(header, value);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_concurrent_requests(CALLS_MAX)
        .max_sse_event_size(MESSAGE_BYTES_MAX)
        // An expired session is a lost connection like any other: what was open in it is gone.
        .reinit_on_expired_session(false)
        .custom_headers(named);
    let transport = StreamableHttpClientTransport::with_client(client(url)?, config);
    serve(Tap::new(transport, calls, lost)).await
}

fn client(url: &str) -> Result<reqwest::Client, String> {
    let url = reqwest::Url::parse(url).map_err(|error| format!("its URL is none: {error}"))?;
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("allstop/", env!("CARGO_PKG_VERSION")))
        // A redirected call is not the same call, and the headers are meant for this host.
        .redirect(reqwest::redirect::Policy::none())
        // Each call has its connection to itself: giving one up closes it.
        .pool_max_idle_per_host(0);
    let host = url.host_str().unwrap_or_default();
    if host == "localhost" || host.starts_with("127.") || host == "[::1]" {
        builder = builder.no_proxy();
    }
    let built = builder.build();
    built.map_err(|error| format!("no HTTP client could be made: {}", error.without_url()))
}

async fn serve<T, E, A>(transport: T) -> Result<Service, String>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let us = Implementation::new("allstop", env!("CARGO_PKG_VERSION"));
    let config = ClientConfig::new(ClientCapabilities::default(), us);
    serve_client(config, transport)
        .await
        .map_err(|error| match error {
            ClientInitializeError::ConnectionClosed(_) => {
                "it closed the connection in the handshake".to_owned()
            }
            ClientInitializeError::JsonRpcError(error) => {
                format!("it refused the handshake: {}", error.message)
            }
            ClientInitializeError::TransportError { error, .. } => {
                format!(
                    "it cannot be reached: {}",
                    crate::shell::chain(&*error.error)
                )
            }
            other => format!("its handshake is wrong: {other}"),
        })
}

/// The server's tools, as many as are used of one.
pub(super) async fn list_tools(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, String> {
    let mut tools = Vec::new();
    let mut page = None;
    for _ in 0..PAGES_MAX {
        let listed = peer.list_tools(page).await.map_err(|error| match error {
            ServiceError::TransportClosed => {
                "it closed the connection before it had listed its tools".to_owned()
            }
            other => format!("it did not list its tools: {other}"),
        })?;
        tools.extend(listed.tools);
        tools.truncate(TOOLS_MAX);
        let Some(cursor) = listed.next_cursor else {
            break;
        };
        page = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)));
    }
    Ok(tools)
}
