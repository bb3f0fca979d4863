//! Clients that are attached to a session.

use std::sync::Arc;

use allstop_core::TurnNumber;
use allstop_core::ids::QuestionId;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::canvases::ClientCanvases;
use crate::connection::{Client, ClientId, ClientRequestError};

/// Optional parts of a session, such as hooks, that a client handles.
#[expect(
    clippy::struct_excessive_bools,
    reason = "a program chooses each handler separately"
)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClientOptions {
    /// True if the client answers permission questions.
    pub permissions: bool,
    /// True if the client has hooks.
    pub hooks: bool,
    /// True if the client answers questions of the model.
    pub user_input: bool,
    /// True if the client fills in forms, also for questions of MCP servers.
    pub elicitation: bool,
    /// True if the client approves plans.
    pub plan_exit: bool,
    /// True if the client answers questions about the switch to the auto model.
    pub auto_mode: bool,
    /// True if the client answers requests for the tokens of MCP servers.
    pub mcp_tokens: bool,
    /// True if the client shows the views of MCP servers, which call tools.
    pub mcp_apps: bool,
}

/// A client of a session.
#[derive(Debug, Clone)]
pub(crate) struct AttachedClient {
    pub client: Arc<Client>,
    pub client_options: ClientOptions,
    /// True if the client receives the pieces of an answer.
    pub streaming: bool,
    /// Slash commands of the client; null if it declares none.
    pub commands: Value,
    pub canvases: ClientCanvases,
    /// Permission questions that were open when the client attached.
    pub asked_again: Arc<[QuestionId]>,
    pub feed: FeedHandle,
}

/// Handle of a feed, which sends the events of the session to one client.
#[derive(Debug, Clone)]
pub(crate) struct FeedHandle {
    /// Number of sent `assistant.idle` events.
    pub idles: Arc<watch::Sender<u64>>,
    /// The last turn whose end was sent.
    pub turns: Arc<watch::Sender<TurnNumber>>,
    /// Number of aborts (stops by clients) whose answers must precede the next event `session.idle`.
    pub aborts: Arc<watch::Sender<u32>>,
    /// Ends the feed.
    pub is_detached: Arc<watch::Sender<bool>>,
}

impl Default for FeedHandle {
    fn default() -> Self {
        Self {
            idles: Arc::new(watch::Sender::new(0)),
            turns: Arc::new(watch::Sender::new(TurnNumber(0))),
            aborts: Arc::new(watch::Sender::new(0)),
            is_detached: Arc::new(watch::Sender::new(false)),
        }
    }
}

/// Result of a detach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetachedClient {
    /// The client was the last attached client.
    Last,
    /// Other clients are still attached.
    OneOfMany,
    /// The client was not attached.
    Unknown,
}

/// Clients of a session, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct AttachedClients {
    clients: Mutex<Vec<AttachedClient>>,
    /// Number of attachments so far. Detached clients count, too.
    arrivals: watch::Sender<u64>,
}

impl AttachedClients {
    /// Adds a client.
    pub(crate) fn attach(&self, attached: AttachedClient) {
        self.clients.lock().push(attached);
        self.arrivals.send_modify(|arrivals| *arrivals += 1);
    }

    /// Stores the optional parts that an attached client handles, and the canvases that it declares. Returns false if the
    /// client is not attached.
    pub(crate) fn change(
        &self,
        client: ClientId,
        client_options: ClientOptions,
        canvases: &ClientCanvases,
    ) -> bool {
        let mut clients = self.clients.lock();
        let mut attached = clients.iter_mut();
        let attached = attached.find(|attached| attached.client.id == client);
        let Some(attached) = attached else {
            return false;
        };
        // A client names this handler with another request.
        let mcp_tokens = attached.client_options.mcp_tokens;
        attached.client_options = ClientOptions {
            mcp_tokens,
            ..client_options
        };
        if !canvases.is_empty() {
            attached.canvases = canvases.clone();
        }
        true
    }

    /// Stores that a client answers requests for tokens, or that it does not. Returns true if this is a change.
    pub(crate) fn set_token_handler(&self, client: ClientId, has_handler: bool) -> bool {
        let mut clients = self.clients.lock();
        let mut attached = clients.iter_mut();
        let attached = attached.find(|attached| attached.client.id == client);
        attached.is_some_and(|attached| {
            let before = std::mem::replace(&mut attached.client_options.mcp_tokens, has_handler);
            before != has_handler
        })
    }

    /// Returns an attached client.
    pub(crate) fn get(&self, client: ClientId) -> Option<AttachedClient> {
        let clients = self.clients.lock();
        let attached = clients.iter().find(|attached| attached.client.id == client);
        attached.cloned()
    }

    /// Removes a client.
    pub(crate) fn detach(&self, client: ClientId) -> DetachedClient {
        let mut clients = self.clients.lock();
        let at = clients
            .iter()
            .position(|attached| attached.client.id == client);
        let Some(at) = at else {
            return DetachedClient::Unknown;
        };
        clients.remove(at).feed.is_detached.send_replace(true);
        if clients.is_empty() {
            DetachedClient::Last
        } else {
            DetachedClient::OneOfMany
        }
    }

    /// True if this client is the only attached client.
    pub(crate) fn is_last(&self, client: ClientId) -> bool {
        let clients = self.clients.lock();
        matches!(clients.as_slice(), [attached] if attached.client.id == client)
    }

    pub(crate) fn all(&self) -> Vec<AttachedClient> {
        self.clients.lock().clone()
    }

    /// Returns the slash commands of all clients.
    pub(crate) fn commands(&self) -> Vec<Value> {
        let clients = self.clients.lock();
        let all = clients
            .iter()
            .filter_map(|attached| attached.commands.as_array());
        all.flatten().cloned().collect()
    }

    pub(crate) fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clients.lock().is_empty()
    }

    pub(crate) fn feed_of(&self, client: ClientId) -> Option<FeedHandle> {
        self.get(client).map(|attached| attached.feed)
    }

    /// True if any client answers permission questions.
    pub(crate) fn has_permission_handler(&self) -> bool {
        let clients = self.clients.lock();
        clients
            .iter()
            .any(|attached| attached.client_options.permissions)
    }

    /// True if the client is attached, and this question was open when it attached.
    pub(crate) fn was_asked_again(&self, client: ClientId, question: &QuestionId) -> bool {
        let attached = self.get(client);
        attached.is_some_and(|attached| attached.asked_again.contains(question))
    }

    /// True if any client fills in forms.
    pub(crate) fn has_forms(&self) -> bool {
        let clients = self.clients.lock();
        let mut attached = clients.iter();
        attached.any(|attached| attached.client_options.elicitation)
    }

    /// Returns the client that attached last among the clients with this option.
    pub(crate) fn latest(
        &self,
        has_option: impl Fn(&ClientOptions) -> bool,
    ) -> Option<AttachedClient> {
        let clients = self.clients.lock();
        let found = clients
            .iter()
            .rev()
            .find(|attached| has_option(&attached.client_options));
        found.cloned()
    }
}

impl AttachedClient {
    /// Sends a request, and waits for its answer until the client is detached.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T, ClientRequestError> {
        let detached = self.detached();
        let params = self.client.secrets.redact(json!(params));
        tokio::select! {
            answer = self.client.request(method, &params) => answer,
            () = detached => Err(ClientRequestError::Gone),
        }
    }

    /// Completes when the client is detached.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn detached(&self) {
        let mut is_detached = self.feed.is_detached.subscribe();
        // This client holds the sender, so the wait ends only when the value changes.
        drop(is_detached.wait_for(|is| *is).await);
    }
}
