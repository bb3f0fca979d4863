//! Streams with record numbers as event ids.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{StreamedEvent, error_code, events, message, post, result, router, rpc};

const ALL: usize = 100;

fn after(mut request: Request<Body>, id: u64) -> Request<Body> {
    request
        .headers_mut()
        .insert("last-event-id", HeaderValue::from(id));
    request
}

fn words(events: &[StreamedEvent]) -> Vec<&str> {
    events.iter().map(|(_, word)| word.as_str()).collect()
}

fn both_bindings(method: &str, path: &str, params: &Value) -> [Request<Body>; 2] {
    [rpc(method, params), post(path, params.to_string())]
}

#[tokio::test]
async fn stream_has_every_event_of_its_task() {
    let router = router().await;
    for (number, request) in both_bindings(
        "SendStreamingMessage",
        "/message:stream",
        &message("m", "echo"),
    )
    .into_iter()
    .enumerate()
    {
        let events = events(&router, request, ALL).await;
        if number == 0 {
            let expected = ["task", "working", "artifactupdate", "completed"];
            assert_eq!(words(&events), expected);
            assert!(events.is_sorted_by(|a, b| a.0 < b.0), "{events:?}");
        } else {
            // A repetition of the message returns the task that the first message created.
            assert_eq!(words(&events), ["task"]);
        }
    }
}

/// A client that loses its connection after any event receives all events, without duplicates.
#[tokio::test]
async fn client_resumes_after_any_event() {
    let router = router().await;
    let params = message("m", "echo");
    let all = events(&router, rpc("SendStreamingMessage", &params), ALL).await;
    let sent = result(&router, "SendMessage", &params).await;
    let id = sent["task"]["id"].as_str().unwrap().to_owned();
    for cut in 1..=all.len() {
        let last = all[cut - 1].0;
        let subscribe = json!({"id": id});
        let requests = [
            rpc("SubscribeToTask", &subscribe),
            post(&format!("/tasks/{id}:subscribe"), ""),
            // A client repeats its message, because it never received the task's id.
            rpc("SendStreamingMessage", &params),
        ];
        for request in requests {
            if cut == all.len() {
                continue; // nothing follows
            }
            let rest = events(&router, after(request, last), ALL).await;
            assert_eq!(rest, all[cut..], "behind {last}");
        }
    }
}

#[tokio::test]
async fn running_task_can_be_followed_and_stopped() {
    let router = router().await;
    let begun = events(
        &router,
        rpc("SendStreamingMessage", &message("m", "wait")),
        3,
    )
    .await;
    assert_eq!(words(&begun), ["task", "working", "artifactupdate"]);
    // The connection is closed, but the task continues.
    let mut params = message("m", "wait");
    params["configuration"] = json!({"returnImmediately": true});
    let id = result(&router, "SendMessage", &params).await["task"]["id"].clone();
    let follow = events(&router, rpc("SubscribeToTask", &json!({"id": id})), 1).await;
    assert_eq!(words(&follow), ["task"]);
    let following = {
        let (router, id) = (router.clone(), id.clone());
        async move {
            let request = after(rpc("SubscribeToTask", &json!({"id": id})), begun[2].0);
            events(&router, request, ALL).await
        }
    };
    let cancel = json!({"id": id});
    let (rest, _) = tokio::join!(following, result(&router, "CancelTask", &cancel));
    assert_eq!(words(&rest), ["canceled"]);
    let ended = error_code(&router, "SubscribeToTask", &cancel).await;
    assert_eq!(
        ended, -32004,
        "a subscription to an ended task is unsupported"
    );
}

/// A stream after this id would omit the next events of the task.
#[tokio::test]
async fn event_id_beyond_the_last_event_is_refused() {
    let router = router().await;
    let params = message("m", "wait");
    let begun = events(&router, rpc("SendStreamingMessage", &params), 3).await;
    let mut sent = params.clone();
    sent["configuration"] = json!({"returnImmediately": true});
    let id = result(&router, "SendMessage", &sent).await["task"]["id"].clone();
    let id = id.as_str().unwrap();
    let last = begun[2].0;
    for beyond in [last + 1, last + 50, u64::MAX] {
        for request in [
            rpc("SubscribeToTask", &json!({"id": id})),
            rpc("SendStreamingMessage", &params),
        ] {
            let (_, body) = crate::support::answer(&router, after(request, beyond)).await;
            assert_eq!(body["error"]["code"], -32602, "{beyond}: {body}");
        }
        let request = after(post(&format!("/tasks/{id}:subscribe"), ""), beyond);
        let (status, body) = crate::support::answer(&router, request).await;
        assert_eq!(status, 400, "{beyond}: {body}");
    }
    let delete = Request::delete(format!("/tasks/{id}:subscribe")).header("a2a-version", "1.0");
    let response = router.clone().oneshot(delete.body(Body::empty()).unwrap());
    assert!(response.await.unwrap().status().is_client_error());
}

#[tokio::test]
async fn invalid_event_id_is_refused() {
    let router = router().await;
    let mut request = rpc("SendStreamingMessage", &message("m", "ask"));
    request
        .headers_mut()
        .insert("last-event-id", HeaderValue::from_static("seven"));
    let (_, body) = crate::support::answer(&router, request).await;
    assert_eq!(body["error"]["code"], -32602, "{body}");
    // The message was not accepted either.
    let listed = result(&router, "ListTasks", &json!({})).await;
    assert_eq!(listed["totalSize"].as_i64().unwrap_or(0), 0, "{listed}");
}

/// The official Python client closes a connection that is silent for five seconds.
#[tokio::test(start_paused = true)]
async fn silent_stream_is_kept_alive_for_impatient_clients() {
    let router = router().await;
    let request = rpc("SendStreamingMessage", &message("m", "wait"));
    let response = router.clone().oneshot(request).await.unwrap();
    let mut body = response.into_body();
    let mut comments = 0;
    for _ in 0..10 {
        let frame = tokio::time::timeout(Duration::from_millis(4500), body.frame()).await;
        let frame = frame.expect("something within the time").unwrap().unwrap();
        let data = frame.into_data().expect("data");
        comments += usize::from(data.starts_with(b":"));
    }
    // The comments follow the three events of the task.
    assert!(comments >= 7, "{comments}");
}
