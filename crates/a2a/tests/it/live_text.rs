//! Streams that show the text of an artifact while it arrives.

use std::time::Duration;

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::stream_response::Payload;
use a2a_pb::proto::{Message, Part, SendMessageRequest, part};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{message, post, result, router, rpc};

/// One server-sent event: its id, if it has one, and its payload.
type RawEvent = (Option<u64>, Value);

/// Reads the events of a stream until its end, or until the predicate holds for the text of the artifact.
async fn read(router: &Router, request: Request<Body>, until: &str) -> (Vec<RawEvent>, String) {
    let response = router.clone().oneshot(request).await.expect("infallible");
    let (mut body, mut bytes) = (response.into_body(), String::new());
    let (mut events, mut text) = (Vec::new(), String::new());
    while until.is_empty() || !text.contains(until) {
        let frame = tokio::time::timeout(Duration::from_secs(20), body.frame()).await;
        let Some(frame) = frame.expect("an event") else {
            break;
        };
        let data = frame.expect("no error").into_data().expect("data");
        bytes.push_str(std::str::from_utf8(&data).expect("whole events"));
        while let Some((event, rest)) = bytes.split_once("\n\n") {
            if let Some(event) = parse(event) {
                apply(&mut text, &event.1);
                events.push(event);
            }
            bytes = rest.to_owned();
        }
    }
    (events, text)
}

fn parse(event: &str) -> Option<RawEvent> {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
    let id = field("id: ").map(|id| id.trim().parse().expect("a number"));
    let mut data: Value = serde_json::from_str(field("data: ")?).expect("JSON");
    let result = data.get_mut("result").map(Value::take);
    Some((id, result.unwrap_or(data)))
}

/// Applies an event to the text of the artifact, as the protocol prescribes.
fn apply(text: &mut String, event: &Value) {
    let update = &event["artifactUpdate"];
    if let Some(part) = update["artifact"]["parts"][0]["text"].as_str() {
        if update["append"] != true {
            text.clear();
        }
        text.push_str(part);
    }
}

fn is_piece(event: &RawEvent) -> bool {
    event.1.get("artifactUpdate").is_some() && event.1["artifactUpdate"]["lastChunk"] != true
}

fn check(events: &[RawEvent], text: &str) {
    assert_eq!(text, "final");
    let pieces: Vec<_> = events.iter().filter(|event| is_piece(event)).collect();
    assert!((10..=21).contains(&pieces.len()), "{events:#?}");
    for (number, (id, piece)) in pieces.iter().enumerate() {
        let update = &piece["artifactUpdate"];
        assert_eq!(*id, None, "a piece has no number: {piece}");
        assert_eq!(update["append"] == true, number > 0, "{piece}");
        assert_eq!(update["artifact"]["artifactId"], "a");
        assert_eq!(update["artifact"]["name"], "answer");
    }
    let numbered: Vec<_> = events.iter().filter(|event| !is_piece(event)).collect();
    assert_eq!(numbered.len(), 4, "{events:#?}");
    assert!(
        numbered
            .iter()
            .is_sorted_by_key(|(id, _)| id.expect("a number"))
    );
    let last = &events[events.len() - 2..];
    assert!(last[0].1["artifactUpdate"]["append"] != true, "{last:?}");
    assert_eq!(
        last[1].1["statusUpdate"]["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
}

#[tokio::test(start_paused = true)]
async fn streams_show_the_text_while_it_arrives() {
    let router = router().await;
    for (id, path) in [("m1", ""), ("m2", "/message:stream")] {
        let params = message(id, "stream");
        let request = if path.is_empty() {
            rpc("SendStreamingMessage", &params)
        } else {
            post(path, params.to_string())
        };
        let (events, text) = read(&router, request, "").await;
        check(&events, &text);
    }
}

/// A client that resumes gets the whole text so far, and replaces what it has.
#[tokio::test(start_paused = true)]
async fn resumed_stream_shows_the_text_from_its_beginning() {
    let router = router().await;
    let sent = rpc("SendStreamingMessage", &message("m", "stream"));
    let (begun, mut text) = read(&router, sent, "5 ").await;
    let id = begun[0].1["task"]["id"].as_str().expect("an id").to_owned();
    let last = begun
        .iter()
        .filter_map(|(id, _)| *id)
        .max()
        .expect("a number");
    for (request, cursor) in [
        (rpc("SubscribeToTask", &json!({"id": id})), None),
        (post(&format!("/tasks/{id}:subscribe"), ""), Some(last)),
    ] {
        let mut request = request;
        if let Some(cursor) = cursor {
            let headers = request.headers_mut();
            headers.insert("last-event-id", HeaderValue::from(cursor));
        }
        let until = if cursor.is_some() { "" } else { "8 " };
        let (events, shown) = read(&router, request, until).await;
        let first = events
            .iter()
            .find(|event| is_piece(event))
            .expect("a piece");
        assert!(first.1["artifactUpdate"]["append"] != true, "{first:?}");
        apply(&mut text, &first.1);
        assert!(text.starts_with("0 1 2 3 4 5 "), "{text}");
        assert!(
            shown == "final" || shown.starts_with("0 1 2 3 4 5 6 7 8 "),
            "{shown}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn text_of_a_stopped_task_does_not_look_like_an_answer() {
    let router = router().await;
    let sent = rpc("SendStreamingMessage", &message("m", "tease"));
    let reading = read(&router, sent, "");
    let stopping = async {
        let listed = loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let listed = result(&router, "ListTasks", &json!({})).await;
            if listed["tasks"][0]["status"]["state"] == "TASK_STATE_WORKING" {
                break listed;
            }
        };
        let cancel = json!({"id": listed["tasks"][0]["id"]});
        result(&router, "CancelTask", &cancel).await
    };
    let ((events, text), canceled) = tokio::join!(reading, stopping);
    assert!(canceled.get("artifacts").is_none(), "{canceled}");
    assert_eq!(text, "", "the pieces are withdrawn: {events:#?}");
    let updates = events
        .iter()
        .filter_map(|event| event.1.get("artifactUpdate"));
    assert!(updates.clone().count() > 2);
    assert!(updates.clone().all(|update| update["lastChunk"] != true));
}

#[tokio::test(start_paused = true)]
async fn grpc_streams_show_the_text_while_it_arrives() {
    let mut client = A2aServiceClient::new(router().await);
    let part = Part {
        content: Some(part::Content::Text("stream".to_owned())),
        ..Part::default()
    };
    let mut request = tonic::Request::new(SendMessageRequest {
        message: Some(Message {
            message_id: "m".to_owned(),
            role: a2a_pb::proto::Role::User.into(),
            parts: vec![part],
            ..Message::default()
        }),
        ..SendMessageRequest::default()
    });
    let metadata = request.metadata_mut();
    metadata.insert("authorization", "alice".parse().expect("a name"));
    metadata.insert("a2a-version", "1.0".parse().expect("a version"));
    let answered = client.send_streaming_message(request).await;
    let mut events = answered.expect("a stream").into_inner();
    let (mut pieces, mut has_final) = (0, false);
    while let Some(event) = events.message().await.expect("no error") {
        if let Some(Payload::ArtifactUpdate(update)) = event.payload {
            assert!(!has_final, "{update:?}");
            assert_eq!(
                update.append,
                pieces > 0 && !update.last_chunk,
                "{update:?}"
            );
            has_final = update.last_chunk;
            pieces += usize::from(!update.last_chunk);
        }
    }
    assert!(has_final && (10..=21).contains(&pieces), "{pieces}");
}
