//! Memory for responses: requests for large tasks wait for each other, and requests of one user do not delay another.

use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::Response;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::gated_log::GatedLog;
use crate::support::{answer, get, grpc_request, message, result, router, router_over_log, rpc};
use crate::test_server::SOON;

fn by(user: &'static str, mut request: Request<Body>) -> Request<Body> {
    let user = HeaderValue::from_static(user);
    request.headers_mut().insert("authorization", user);
    request
}

async fn ended_task(router: &Router, user: &'static str) -> String {
    let sent = by(user, rpc("SendMessage", &message(user, "echo")));
    let (_, body) = answer(router, sent).await;
    let id = body["result"]["task"]["id"].as_str();
    id.unwrap_or_else(|| panic!("{body}")).to_owned()
}

/// A task of Alice, whose reads wait, and a task of Bob.
async fn held_task() -> (GatedLog, Router, String, String) {
    let written = GatedLog::new();
    let router = router_over_log(Arc::new(written.clone())).await;
    let of_alice = ended_task(&router, "alice").await;
    let of_bob = ended_task(&router, "bob").await;
    // A server that has just started has no task in memory.
    let log = written.copy().await;
    let router = router_over_log(Arc::new(log.clone())).await;
    log.hold(&of_alice);
    (log, router, of_alice, of_bob)
}

/// Number of requests of Alice: many more than run at the same time.
const REQUESTS: usize = 50;

/// A gRPC request for the task with this id.
fn grpc_id(text: &str) -> Vec<u8> {
    let mut message = vec![2 << 3 | 2, u8::try_from(text.len()).expect("a short text")];
    message.extend(text.as_bytes());
    message
}

fn requests_of_alice(id: &str) -> [(&'static str, Request<Body>); 4] {
    [
        ("list", get("/tasks")),
        ("list over JSON-RPC", rpc("ListTasks", &json!({}))),
        ("task", get(&format!("/tasks/{id}"))),
        ("task over gRPC", grpc_request("GetTask", &grpc_id(id))),
    ]
}

/// The requests of Alice do not end before the answer to Bob, so he cannot wait for them.
#[tokio::test]
async fn requests_of_one_user_do_not_delay_another() {
    for kind in 0..4 {
        let (log, router, of_alice, of_bob) = held_task().await;
        let mut of_hers = FuturesUnordered::new();
        for _ in 0..REQUESTS {
            let [mut first, mut second, mut third, mut fourth] =
                requests_of_alice(&of_alice).map(|(_, request)| Some(request));
            let request = [&mut first, &mut second, &mut third, &mut fourth][kind].take();
            of_hers.push(router.clone().oneshot(request.expect("a request")));
        }
        let mut waiting = log.waiting();
        let begun = async {
            tokio::select! {
                _answered = of_hers.next() => panic!("reads of her task wait"),
                // Her requests fill her share.
                begun = waiting.wait_for(|count| *count >= 4) => drop(begun),
            }
        };
        tokio::time::timeout(SOON, begun).await.expect("they run");
        let his = async {
            let (status, body) = answer(&router, by("bob", get("/tasks"))).await;
            assert_eq!((status, &body["totalSize"]), (StatusCode::OK, &json!(1)));
            let (status, _) = answer(&router, by("bob", get(&format!("/tasks/{of_bob}")))).await;
            assert_eq!(status, StatusCode::OK);
        };
        tokio::time::timeout(SOON, his).await.expect("no wait");
        log.release();
        let hers = tokio::time::timeout(SOON, of_hers.collect::<Vec<_>>());
        for response in hers.await.expect("all are answered") {
            assert_eq!(response.expect("infallible").status(), StatusCode::OK);
        }
    }
}

#[tokio::test]
async fn requests_of_clients_that_left_hold_nothing() {
    let (log, router, of_alice, _) = held_task().await;
    let gone = (0..REQUESTS).map(|_| router.clone().oneshot(get(&format!("/tasks/{of_alice}"))));
    let mut waiting = log.waiting();
    let gone = async {
        tokio::select! {
            _answered = join_all(gone) => panic!("reads of her task wait"),
            // The value holds a lock that the end of a read needs.
            () = async { drop(waiting.wait_for(|count| *count >= 4).await) } => {}
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("they run");
    // Reads of this task still wait, so a request that was left would hold its memory.
    let other = result(&router, "SendMessage", &message("other", "echo")).await;
    let id = other["task"]["id"].as_str().expect("an id");
    let (status, _) = answer(&router, get(&format!("/tasks/{id}"))).await;
    assert_eq!(status, StatusCode::OK);
}

/// Size of the large task, in bytes.
const LARGE_BYTES: usize = 4 << 20;

/// Number of requests for the large task at the same time.
const LARGE_REQUESTS: usize = 5;

/// Maximum number of its responses that are built at the same time: the share of a user has 16 MiB.
const BUILT_MAX: usize = 3;

/// A large task of Alice that waits for input.
async fn large_task(router: &Router) -> String {
    let sent = result(router, "SendMessage", &large_message()).await;
    sent["task"]["id"].as_str().expect("an id").to_owned()
}

fn large_message() -> Value {
    message("large", &format!("ask {}", "x".repeat(LARGE_BYTES)))
}

/// Reads the body to its end, and keeps nothing.
async fn take(response: Response) {
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.expect("no error");
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    assert!(bytes > LARGE_BYTES, "{bytes}");
}

/// The other requests wait until the bodies of the first responses are taken.
#[tokio::test]
async fn few_large_responses_are_built_at_the_same_time() {
    let router = router().await;
    let id = large_task(&router).await;
    let repeated = large_message();
    for kind in 0..4 {
        let request = || match kind {
            0 => get(&format!("/tasks/{id}")),
            1 => rpc("GetTask", &json!({"id": id})),
            2 => grpc_request("GetTask", &grpc_id(&id)),
            _ => rpc("SendMessage", &repeated),
        };
        let requests = (0..LARGE_REQUESTS).map(|_| router.clone().oneshot(request()));
        let mut requests: FuturesUnordered<_> = requests.collect();
        let (mut built, mut taken) = (Vec::new(), 0);
        while taken < LARGE_REQUESTS {
            // The log is in memory, so a response that waits for no memory needs no other event.
            for _ in 0..100 * LARGE_REQUESTS {
                if let Poll::Ready(Some(response)) = futures::poll!(requests.next()) {
                    built.push(response.expect("infallible"));
                }
                tokio::task::yield_now().await;
            }
            let left = LARGE_REQUESTS - taken;
            assert_eq!(built.len(), left.min(BUILT_MAX), "kind {kind}");
            take(built.pop().expect("a response")).await;
            taken += 1;
        }
    }
}

/// Streams begin with the task. A stream whose client does not read on holds no memory, so the others get their task.
#[tokio::test]
async fn streams_that_are_not_read_do_not_delay_others() {
    let router = router().await;
    let id = large_task(&router).await;
    let mut open = Vec::new();
    for number in 0..2 * LARGE_REQUESTS {
        let request = match number % 2 {
            0 => grpc_request("SubscribeToTask", &grpc_id(&id)),
            _ => rpc("SubscribeToTask", &json!({"id": id})),
        };
        let response = router.clone().oneshot(request);
        let response = tokio::time::timeout(SOON, response).await;
        let mut body = response.expect("no wait").expect("infallible").into_body();
        let first = tokio::time::timeout(SOON, body.frame()).await;
        let first = first.expect("no wait").expect("a frame").expect("no error");
        assert!(
            first
                .data_ref()
                .is_some_and(|data| data.len() > LARGE_BYTES)
        );
        open.push(body);
    }
}
