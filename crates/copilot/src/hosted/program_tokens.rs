//! Access tokens for MCP servers, which the program of a client gets from its user or from another service.
//!
//! The event `mcp.oauth_required` requests a token, and the first answer of a client counts. The token stays in memory: no
//! event, log or error contains it.

use std::collections::BTreeMap;
use std::sync::Arc;

use allstop_tools::mcp::{McpToken, McpTokenReason, McpTokenRequest, McpTokenSource};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use super::attached_clients::AttachedClients;
use super::{HostedSession, SessionChoice, UnansweredRequests};
use crate::client_parts::server_name;
use crate::connection::ClientId;
use crate::translate::HostEvent;

/// Requests for the tokens of one session's servers.
#[derive(Debug)]
pub(crate) struct ProgramTokens {
    attached_clients: Arc<AttachedClients>,
    host_events: broadcast::Sender<HostEvent>,
    /// Servers of the clients, by their names in the names of tools.
    servers: BTreeMap<String, NamedServer>,
    /// The answer `None` declines the request.
    open: UnansweredRequests<Option<McpToken>>,
    /// Number of handlers that have arrived.
    arrivals: watch::Sender<u64>,
    /// Number of handlers that have left. The open requests end, because their events went to the earlier handlers.
    departures: watch::Sender<u64>,
}

#[derive(Debug)]
struct NamedServer {
    name: String,
    /// Client of the authorization server, as the program has configured it.
    oauth_client: Option<Value>,
}

/// Reports the end of a request to the clients when it is dropped.
struct EndReport<'a> {
    id: String,
    outcome: &'static str,
    host_events: &'a broadcast::Sender<HostEvent>,
}

impl Drop for EndReport<'_> {
    fn drop(&mut self) {
        let data = json!({ "requestId": self.id, "outcome": self.outcome });
        send(self.host_events, "mcp.oauth_completed", data);
    }
}

fn send(host_events: &broadcast::Sender<HostEvent>, kind: &'static str, data: Value) {
    // If no client is attached, the event is not needed.
    drop(host_events.send(HostEvent::Ephemeral { kind, data }));
}

impl ProgramTokens {
    pub(super) fn new(
        choice: &SessionChoice,
        attached_clients: &Arc<AttachedClients>,
        host_events: &broadcast::Sender<HostEvent>,
    ) -> Arc<Self> {
        let servers = choice.parts.all_servers().into_iter();
        let servers = servers.map(|(name, server)| {
            let named = NamedServer {
                name: name.clone(),
                oauth_client: server.oauth_client(),
            };
            (server_name(name).into_owned(), named)
        });
        Arc::new(Self {
            attached_clients: Arc::clone(attached_clients),
            host_events: host_events.clone(),
            servers: servers.collect(),
            open: UnansweredRequests::default(),
            arrivals: watch::Sender::new(0),
            departures: watch::Sender::new(0),
        })
    }

    fn arrived(&self) {
        self.arrivals.send_modify(|arrivals| *arrivals += 1);
    }

    /// Ends the open requests. The remaining handlers are asked again.
    fn departed(&self) {
        self.departures.send_modify(|departures| *departures += 1);
        if self.has_handler() {
            self.arrived();
        }
    }

    fn event(&self, id: &str, request: &McpTokenRequest) -> Value {
        let named = self.servers.get(&*request.server);
        let challenge = &request.challenge;
        let fields = [
            ("resourceMetadataUrl", &challenge.resource_metadata_url),
            ("scope", &challenge.scope),
            ("error", &challenge.error),
        ];
        let fields = fields.into_iter().filter(|(_, value)| value.is_some());
        let mut data = json!({
            "requestId": id,
            "serverName": named.map_or(&*request.server, |named| &named.name),
            "serverUrl": request.url,
            "reason": match request.reason {
                McpTokenReason::Initial => "initial",
                McpTokenReason::Refresh => "refresh",
                McpTokenReason::Reauth => "reauth",
                McpTokenReason::Upscope => "upscope",
            },
            "wwwAuthenticateParams": fields.map(|(name, value)| (name, json!(value))).collect::<BTreeMap<_, _>>(),
        });
        if let Some(metadata) = &request.resource_metadata {
            data["resourceMetadata"] = metadata.as_str().into();
        }
        if let Some(client) = named.and_then(|named| named.oauth_client.as_ref()) {
            data["staticClientConfig"] = client.clone();
        }
        data
    }
}

impl McpTokenSource for ProgramTokens {
    fn has_handler(&self) -> bool {
        let handler = self.attached_clients.latest(|options| options.mcp_tokens);
        handler.is_some()
    }

    fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    fn token(&self, request: McpTokenRequest) -> BoxFuture<'_, Option<McpToken>> {
        async move {
            let mut departures = self.departures.subscribe();
            if !self.has_handler() {
                return None;
            }
            let open = self.open.add();
            let mut report = EndReport {
                id: open.id().to_owned(),
                outcome: "cancelled",
                host_events: &self.host_events,
            };
            let data = self.event(open.id(), &request);
            send(&self.host_events, "mcp.oauth_required", data);
            let token = tokio::select! {
                biased;
                token = open.answer() => token.flatten(),
                _ = departures.changed() => None,
            };
            if token.is_some() {
                report.outcome = "token";
            }
            token
        }
        .boxed()
    }
}

impl HostedSession {
    /// Records that a client answers requests for tokens of MCP servers. Refused servers ask again.
    pub(crate) fn add_token_handler(&self, client: ClientId) {
        if self.attached_clients.set_token_handler(client, true) {
            self.mcp_tokens.arrived();
        }
    }

    /// Records that a client answers no more requests for tokens.
    pub(crate) fn remove_token_handler(&self, client: ClientId) {
        if self.attached_clients.set_token_handler(client, false) {
            self.mcp_tokens.departed();
        }
    }

    /// Answers a request for a token; `None` declines the request. Returns false if no request with this id waits.
    pub(crate) fn answer_token(&self, request: &str, token: Option<McpToken>) -> bool {
        self.mcp_tokens.open.answer(request, token)
    }

    /// Has refused servers ask again after the arrival of a client that has a handler already.
    pub(super) fn report_token_handler(&self, has_handler: bool) {
        if has_handler {
            self.mcp_tokens.arrived();
        }
    }
}
