//! A webhook on a free port, which records its requests and sends the answers that the test defines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{ServerOptions, serve};
use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{RootOptions, Scope, StopRequest, WorkSpec};
use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Maximum wait for an expected event.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Request that a webhook received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedEvent {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedEvent {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().expect("ASCII"))
    }

    pub(crate) fn number(&self) -> u64 {
        self.header("x-a2a-event-number").parse().expect("a number")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// Returns a short name for the event: its state, or the kind of its payload.
    pub(crate) fn word(&self) -> String {
        let json = self.json();
        let state = json["statusUpdate"]["status"]["state"].as_str();
        let state = state.map(|state| state.replace("TASK_STATE_", "").to_lowercase());
        state.unwrap_or_else(|| {
            json.as_object()
                .expect("an object")
                .keys()
                .next()
                .expect("a field")
                .clone()
        })
    }
}

/// Answer of a webhook.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HookAnswer {
    Status(u16),
    /// A redirect to this address.
    Redirect(SocketAddr),
    /// No answer at all.
    Hang,
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    received: watch::Sender<Vec<ReceivedEvent>>,
    scope: Scope,
}

impl Receiver {
    /// Starts a webhook that accepts all requests.
    pub(crate) async fn start() -> Self {
        Self::answering(|_| HookAnswer::Status(204)).await
    }

    /// Starts a webhook that answers each request with the result of `answer`, which receives the request's number,
    /// counted from 1.
    pub(crate) async fn answering(
        answer: impl Fn(usize) -> HookAnswer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let received = watch::Sender::new(Vec::new());
        let (answer, record) = (Arc::new(answer), received.clone());
        let router = Router::new().fallback(move |request: Request| {
            let (answer, record) = (Arc::clone(&answer), record.clone());
            async move { receive(request, &*answer, &record).await }
        });
        let scope = Scope::root("receiver", RootOptions::single_runtime());
        let spec = WorkSpec::new(ItemKind::Future, "listener");
        let accepting = scope.clone();
        let serving = scope.spawn(spec, move |_| {
            serve(listener, router, accepting, ServerOptions::default())
        });
        drop(serving.expect("nothing is stopped"));
        Self {
            address,
            received,
            scope,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Returns the requests so far.
    pub(crate) fn received(&self) -> Vec<ReceivedEvent> {
        self.received.borrow().clone()
    }

    /// Waits for this many requests, and returns all requests.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<ReceivedEvent> {
        let mut received = self.received.subscribe();
        let enough = received.wait_for(|received| received.len() >= count);
        let enough = tokio::time::timeout(SOON, enough).await;
        let missing = || format!("{count} requests, got {:?}", words(&self.received()));
        enough
            .unwrap_or_else(|_| panic!("{}", missing()))
            .expect("the sender lives")
            .clone()
    }

    /// Closes the port and every connection.
    pub(crate) async fn close(self) {
        let cause = Cause::new(CauseKind::Shutdown);
        let stop = StopRequest::new(Extent::Process, cause).grace(Duration::ZERO);
        self.scope.stop(stop).await;
    }
}

async fn receive(
    request: Request,
    answer: &(dyn Fn(usize) -> HookAnswer + Send + Sync),
    record: &watch::Sender<Vec<ReceivedEvent>>,
) -> Response {
    let (parts, body) = request.into_parts();
    let event = ReceivedEvent {
        path: parts.uri.path().to_owned(),
        headers: parts.headers,
        body: body.collect().await.expect("a body").to_bytes(),
    };
    let mut count = 0;
    record.send_modify(|received| {
        received.push(event);
        count = received.len();
    });
    match answer(count) {
        HookAnswer::Status(status) => StatusCode::from_u16(status)
            .expect("a status")
            .into_response(),
        HookAnswer::Redirect(to) => {
            let to = format!("http://{to}/redirected");
            (StatusCode::TEMPORARY_REDIRECT, [("location", to)]).into_response()
        }
        HookAnswer::Hang => std::future::pending().await,
    }
}

pub(crate) fn words(received: &[ReceivedEvent]) -> Vec<String> {
    received.iter().map(ReceivedEvent::word).collect()
}
