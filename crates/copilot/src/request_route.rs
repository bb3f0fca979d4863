//! Route of a session's requests to models through one of its clients, and of its requests for tokens.

use std::sync::{Arc, Weak};

use allstop_core::SessionId;
use allstop_model::provider::TokenFetch;
use allstop_model::{CarriedRequest, CarriedResponse, CarrierError, RequestCarrier};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::connection::{Client, ResponsePart};
use crate::hosted::{AttachedClient, AttachedClients};

/// Route of the requests of one session. Clones share the route, which leads to the clients of the session as soon as the
/// session is open.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestRoute {
    end: Arc<Mutex<Option<RouteEnd>>>,
    /// True if a client carries the requests to models.
    is_carried: bool,
}

#[derive(Debug, Clone)]
struct RouteEnd {
    session: SessionId,
    clients: Weak<AttachedClients>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: String,
}

impl RequestRoute {
    /// Creates a route. The requests to models go through a client if `is_carried` is true.
    pub(crate) fn new(is_carried: bool) -> Self {
        Self {
            is_carried,
            ..Self::default()
        }
    }

    /// Creates the list of the clients of a session that opens, and leads the route to these clients.
    pub(crate) fn bind(&self, session: &SessionId) -> Arc<AttachedClients> {
        let clients = Arc::new(AttachedClients::default());
        *self.end.lock() = Some(RouteEnd {
            session: session.clone(),
            clients: Arc::downgrade(&clients),
        });
        clients
    }

    /// Carrier of the requests to models; `None` if the server sends them itself.
    pub(crate) fn carrier(&self) -> Option<Arc<dyn RequestCarrier>> {
        self.is_carried
            .then(|| Arc::new(self.clone()) as Arc<dyn RequestCarrier>)
    }

    /// Function that asks the clients for a token of a provider.
    pub(crate) fn token_fetch(&self, provider: &str) -> TokenFetch {
        let (route, provider) = (self.clone(), Arc::<str>::from(provider));
        Arc::new(move || {
            let (route, provider) = (route.clone(), Arc::clone(&provider));
            async move { route.token(&provider).await }.boxed()
        })
    }

    /// Session of the route, and its clients, the newest client first.
    fn clients(&self) -> Result<(SessionId, Vec<AttachedClient>), CarrierError> {
        let end = self.end.lock().clone();
        let open = end.and_then(|end| Some((end.session, end.clients.upgrade()?)));
        let (session, clients) =
            open.ok_or_else(|| CarrierError("the session is closed".to_owned()))?;
        let mut clients = clients.all();
        clients.reverse();
        Ok((session, clients))
    }

    /// Asks the clients for a token, the newest client first, until one returns a token.
    async fn token(&self, provider: &str) -> Result<String, CarrierError> {
        let mut reason = "no client is attached".to_owned();
        let (session, clients) = self.clients()?;
        let params = json!({ "providerName": provider, "sessionId": session });
        for attached in clients {
            match attached.request("providerToken.getToken", &params).await {
                Ok(TokenAnswer { token }) => return Ok(token),
                Err(error) => reason = error.to_string(),
            }
        }
        let message = format!("no client returned a token for the provider {provider:?}: {reason}");
        Err(CarrierError(message))
    }
}

impl RequestCarrier for RequestRoute {
    fn carry(
        &self,
        request: CarriedRequest,
    ) -> BoxFuture<'_, Result<CarriedResponse, CarrierError>> {
        async move {
            let (session, clients) = self.clients()?;
            let mut carriers = clients.into_iter();
            let carrier = carriers.find(|attached| attached.client.carries_requests());
            let carrier = carrier.ok_or_else(|| {
                CarrierError("no attached client carries requests to models".to_owned())
            })?;
            CarriedCall::send(carrier.client, &session, request).await
        }
        .boxed()
    }
}

/// A request that a client carries. Dropping this value cancels the request at the client.
#[derive(Debug)]
struct CarriedCall {
    client: Arc<Client>,
    id: String,
    is_sent: bool,
    parts: mpsc::Receiver<ResponsePart>,
}

impl CarriedCall {
    async fn send(
        client: Arc<Client>,
        session: &SessionId,
        request: CarriedRequest,
    ) -> Result<CarriedResponse, CarrierError> {
        let id = ulid::Ulid::generate().to_string();
        let work = request.probe.begin_outside_work();
        let parts = client.carried.add(&id, work);
        let parts = parts.map_err(|refused| CarrierError(refused.to_string()))?;
        let mut call = Self {
            client,
            id,
            is_sent: false,
            parts,
        };
        let failed = |error: &dyn std::error::Error| CarrierError(error.to_string());
        let start = start_params(&call.id, session, &request);
        let (client, is_sent) = (Arc::clone(&call.client), &mut call.is_sent);
        let started =
            client.request_noting::<Value>("llmInference.httpRequestStart", &start, || {
                *is_sent = true;
            });
        started.await.map_err(|error| failed(&error))?;
        let body = json!({ "requestId": call.id, "data": request.body, "end": true });
        let sent = client.request::<Value>("llmInference.httpRequestChunk", &body);
        sent.await.map_err(|error| failed(&error))?;
        match call.parts.recv().await {
            Some(ResponsePart::Head { status, headers }) => Ok(CarriedResponse {
                status,
                headers,
                body: call.into_body(status).boxed(),
            }),
            Some(ResponsePart::Failed(reason)) => Err(CarrierError(reason)),
            Some(ResponsePart::Piece(_)) => Err(CarrierError(
                "the client sent a body without a status".to_owned(),
            )),
            None => Err(CarrierError("the client has disconnected".to_owned())),
        }
    }

    /// Pieces of the body. The text of a failure is the body of a refused request, because the SDKs report an exception of
    /// a handler in this way.
    fn into_body(
        self,
        status: u16,
    ) -> impl futures::Stream<Item = Result<bytes::Bytes, CarrierError>> + Send {
        let state = (Some(self), false);
        stream::unfold(state, move |(call, has_pieces)| async move {
            let mut call = call?;
            match call.parts.recv().await {
                Some(ResponsePart::Piece(bytes)) => Some((Ok(bytes.into()), (Some(call), true))),
                Some(ResponsePart::Failed(reason)) if status >= 400 && !has_pieces => {
                    Some((Ok(reason.into()), (None, true)))
                }
                Some(ResponsePart::Failed(reason)) => {
                    Some((Err(CarrierError(reason)), (None, true)))
                }
                Some(ResponsePart::Head { .. }) => {
                    let message = "the client sent two beginnings of one response";
                    Some((Err(CarrierError(message.to_owned())), (None, true)))
                }
                None => None,
            }
        })
    }
}

impl Drop for CarriedCall {
    fn drop(&mut self) {
        if !self.is_sent {
            self.client.carried.remove(&self.id);
        } else if self.client.carried.withdraw(&self.id) {
            let cancel = json!({ "requestId": self.id, "data": "", "end": true, "cancel": true });
            // A client that has disconnected has no requests.
            let _sent_or_gone = self
                .client
                .send_now("llmInference.httpRequestChunk", &cancel);
        }
    }
}

/// Parameters of `llmInference.httpRequestStart`. The session of a sub-agent names the agent, and its part before the last
/// slash names the agent that started it.
fn start_params(id: &str, session: &SessionId, request: &CarriedRequest) -> Value {
    let mut headers = Map::new();
    for (name, value) in &request.headers {
        let values = headers.entry(name.clone()).or_insert_with(|| json!([]));
        if let Value::Array(values) = values {
            values.push(value.as_str().into());
        }
    }
    let agent = request.session.as_ref().unwrap_or(session).as_str();
    let mut params = json!({
        "requestId": id,
        "sessionId": session,
        "method": request.method,
        "url": request.url,
        "headers": headers,
        "transport": "http",
        "agentId": agent,
        "interactionType": "conversation-agent",
    });
    if agent != session.as_str()
        && let Some((parent, _)) = agent.rsplit_once('/')
    {
        params["parentAgentId"] = parent.into();
        params["interactionType"] = "conversation-subagent".into();
    }
    params
}
