//! The handshake with an MCP server, from its configuration to an established connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rmcp::ClientCacheConfig;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitationCapability, FormElicitationCapability,
    Implementation, JsonObject, ProtocolVersion, TASKS_EXTENSION_ID, UrlElicitationCapability,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, RoleClient, RunningService,
    serve_client_with_lifecycle,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};

use super::calls::OpenCalls;
use super::cancellation::CancelForm;
use super::client_handler::McpClientHandler;
use super::http_client::HttpClient;
use super::interceptor::{ConnectionSinks, MessageInterceptor};
use super::legacy_events::LegacyEvents;
use super::limits::{CALLS_MAX, CANCEL_SETTLE, CANCEL_SETTLE_CONFIRMED, MESSAGE_BYTES_MAX};
use super::pipes::ServerInput;
use super::server_output::ServerOutput;
use super::token_origin::TokenOrigin;
use super::url_query::without_queries;
use super::web_client::web_client;

/// Extension of `allstop mcp serve`: the server answers a cancelled call after the verified end of its command. By the
/// protocol, a server should not answer.
const CONFIRMED_CANCEL: &str = "io.allstop/confirmed-cancel";

/// Time in which a server should answer a cancelled call.
pub(super) fn cancel_settle(peer: &Peer<RoleClient>) -> Duration {
    if confirms_cancellations(peer) {
        CANCEL_SETTLE_CONFIRMED
    } else {
        CANCEL_SETTLE
    }
}

/// Form of the cancellations of a connection. From revision 2026-07-28 on, a closed response is the cancellation over
/// HTTP, except at a server with the extension.
pub(super) fn cancel_form(peer: &Peer<RoleClient>, is_process: bool) -> CancelForm {
    let info = peer.peer_info();
    let has_notification = info.is_some_and(|info| info.protocol_version.has_initialize());
    if !is_process && (has_notification || confirms_cancellations(peer)) {
        CancelForm::KeepsResponse
    } else {
        CancelForm::ClosesResponse
    }
}

fn confirms_cancellations(peer: &Peer<RoleClient>) -> bool {
    let info = peer.peer_info();
    let extensions = info
        .as_ref()
        .and_then(|info| info.capabilities.extensions.as_ref());
    extensions.is_some_and(|extensions| extensions.contains_key(CONFIRMED_CANCEL))
}

/// First request of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstRequest {
    /// `server/discover`, and `initialize` if the server does not know it.
    Discover,
    /// `initialize`, because the server ends when it gets an unknown request.
    Initialize,
}

/// The loop in which the protocol library serves a connection. Dropping the value ends the loop.
pub(super) type Service = RunningService<RoleClient, McpClientHandler>;

pub(super) async fn over_pipes(
    (output, input): (ServerOutput, ServerInput),
    first: FirstRequest,
    sinks: ConnectionSinks,
) -> Result<Service, String> {
    let lines = AsyncRwTransport::new_client(output, input).with_max_line_length(MESSAGE_BYTES_MAX);
    let calls = Arc::clone(&sinks.calls);
    serve(MessageInterceptor::in_order(lines, sinks), first, calls).await
}

pub(super) async fn over_http(
    server: &Arc<str>,
    url: &str,
    headers: &[(String, String)],
    access: TokenOrigin,
    sinks: ConnectionSinks,
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
        // The cancellation of a call is sent while the request of the call is open.
        .max_concurrent_requests(2 * CALLS_MAX)
        // An expired session counts as a lost connection, and its open calls are lost.
        .reinit_on_expired_session(false)
        .custom_headers(named);
    let client = HttpClient {
        client: web_client(url)?,
        server: Arc::clone(server),
        access,
        calls: Arc::clone(&sinks.calls),
        loss: sinks.loss.clone(),
        legacy: LegacyEvents::default(),
    };
    let transport = StreamableHttpClientTransport::with_client(client, config);
    let calls = Arc::clone(&sinks.calls);
    let transport = MessageInterceptor::new(transport, sinks);
    serve(transport, FirstRequest::Discover, calls).await
}

async fn serve<T, E, A>(
    transport: T,
    first: FirstRequest,
    calls: Arc<OpenCalls>,
) -> Result<Service, String>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let client = Implementation::new("allstop", env!("CARGO_PKG_VERSION"));
    let mut capabilities = ClientCapabilities::default();
    let elicitation = ElicitationCapability::new()
        .with_form(FormElicitationCapability::default())
        .with_url(UrlElicitationCapability::default());
    capabilities.elicitation = Some(elicitation);
    let tasks = (TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
    let confirmed = (CONFIRMED_CANCEL.to_owned(), JsonObject::new());
    capabilities.extensions = Some([tasks, confirmed].into());
    let handler = McpClientHandler {
        config: ClientConfig::new(capabilities, client),
        calls,
    };
    let lifecycle = match first {
        FirstRequest::Initialize => ClientLifecycleMode::Initialize,
        FirstRequest::Discover => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        },
    };
    let service = serve_client_with_lifecycle(handler, transport, lifecycle).await;
    let service = service.map_err(|error| failure(&error))?;
    // The list is requested only after a change, so a cached list would be outdated. An error is better than an
    // outdated list.
    let peer = service.peer();
    peer.set_response_cache_config(ClientCacheConfig::disabled())
        .await;
    Ok(service)
}

/// Reason why a connection could not be established.
fn failure(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => {
            "it closed the connection in the handshake".to_owned()
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refused the handshake: {}", error.message)
        }
        ClientInitializeError::TransportError { error, .. } => {
            let chain = allstop_core::error_chain(&*error.error);
            format!("it cannot be reached: {}", without_queries(&chain))
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => failure(fallback),
        other => format!("invalid handshake: {other}"),
    }
}
