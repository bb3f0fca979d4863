//! The rate limit of requests, over each binding.

use std::num::NonZeroU32;
use std::sync::Arc;

use allstop_a2a::AccessControl;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::json;
use tower::ServiceExt as _;

use crate::support::{NamedUsers, answer, get, grpc_request, router_with, rpc};

const GRPC_RESOURCE_EXHAUSTED: &str = "8";

fn of(mut request: Request<Body>, user: &str) -> Request<Body> {
    let user = user.parse().expect("a name");
    request.headers_mut().insert("authorization", user);
    request
}

/// One limit counts the requests of all bindings. Other users have separate limits, and the card has no limit.
#[tokio::test]
async fn requests_beyond_the_limit_are_refused() {
    let access = AccessControl::new(Arc::new(NamedUsers)).rate_limit(NonZeroU32::new(1).unwrap());
    let router = router_with(access).await;
    let ask = async |request: Request<Body>| router.clone().oneshot(request).await.unwrap();
    let first = ask(rpc("ListTasks", &json!({}))).await;
    assert_eq!(first.status(), StatusCode::OK);
    for request in [rpc("ListTasks", &json!({})), get("/tasks")] {
        let refused = ask(request).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()["retry-after"], "1");
    }
    let (_, body) = answer(&router, rpc("ListTasks", &json!({}))).await;
    assert_eq!(body["jsonrpc"], "2.0", "{body}");
    assert_eq!(body["error"]["code"], -32_050, "{body}");
    let info = &body["error"]["data"][0];
    assert_eq!(info["reason"], "RESOURCE_EXHAUSTED", "{body}");
    assert_eq!(info["metadata"]["retryAfterSeconds"], "1", "{body}");
    let (_, body) = answer(&router, get("/tasks")).await;
    assert_eq!(body["error"]["status"], "RESOURCE_EXHAUSTED", "{body}");
    let refused = ask(grpc_request("ListTasks", &[])).await;
    assert_eq!(refused.headers()["grpc-status"], GRPC_RESOURCE_EXHAUSTED);
    assert_eq!(refused.headers()["retry-after"], "1");
    let other = ask(of(get("/tasks"), "bob")).await;
    assert_eq!(other.status(), StatusCode::OK);
    for _ in 0..3 {
        let card = Request::get("/.well-known/agent-card.json").body(Body::empty());
        assert_eq!(ask(card.unwrap()).await.status(), StatusCode::OK);
    }
}
