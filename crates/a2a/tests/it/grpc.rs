//! gRPC: tasks of other principals (authenticated users), and messages beyond the limits.

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{
    CancelTaskRequest, GetTaskRequest, ListTasksRequest, Message, Part, SendMessageRequest,
    SubscribeToTaskRequest, part, send_message_response,
};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use tonic::{Code, Request, Status};
use tower::ServiceExt as _;

use crate::support::{grpc_request, post, router};

fn of<T>(user: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("authorization", user.parse().expect("a name"));
    metadata.insert("a2a-version", "1.0".parse().expect("a version"));
    // The server ignores a principal that a client claims.
    metadata.insert("x-allstop-principal", "alice".parse().expect("a name"));
    request
}

fn message(id: &str, text: &str, task_id: &str) -> SendMessageRequest {
    let part = Part {
        content: Some(part::Content::Text(text.to_owned())),
        ..Part::default()
    };
    SendMessageRequest {
        message: Some(Message {
            message_id: id.to_owned(),
            task_id: task_id.to_owned(),
            role: a2a_pb::proto::Role::User.into(),
            parts: vec![part],
            ..Message::default()
        }),
        ..SendMessageRequest::default()
    }
}

async fn task_of_alice(client: &mut A2aServiceClient<Router>) -> String {
    let sent = client
        .send_message(of("alice", message("m", "ask", "")))
        .await;
    match sent.expect("an answer").into_inner().payload {
        Some(send_message_response::Payload::Task(task)) => task.id,
        other => panic!("not a task: {other:?}"),
    }
}

fn code<T>(answer: Result<T, Status>) -> Code {
    answer.err().map_or(Code::Ok, |status| status.code())
}

#[tokio::test]
async fn tasks_of_others_are_not_found() {
    let mut client = A2aServiceClient::new(router().await);
    let id = task_of_alice(&mut client).await;
    let get = || GetTaskRequest {
        id: id.clone(),
        ..GetTaskRequest::default()
    };
    let cancel = CancelTaskRequest {
        id: id.clone(),
        ..CancelTaskRequest::default()
    };
    let subscribe = SubscribeToTaskRequest {
        id: id.clone(),
        ..SubscribeToTaskRequest::default()
    };
    let follow_up = message("m2", "echo", &id);
    let answers = [
        code(client.get_task(of("bob", get())).await),
        code(client.cancel_task(of("bob", cancel)).await),
        code(client.subscribe_to_task(of("bob", subscribe)).await),
        code(client.send_message(of("bob", follow_up.clone())).await),
        code(client.send_streaming_message(of("bob", follow_up)).await),
    ];
    assert_eq!(answers, [Code::NotFound; 5]);
    let listed = client.list_tasks(of("bob", ListTasksRequest::default()));
    assert!(listed.await.unwrap().into_inner().tasks.is_empty());
    assert_eq!(code(client.get_task(of("alice", get())).await), Code::Ok);
}

fn grpc_status(headers: &HeaderMap) -> Code {
    let status = Status::from_header_map(headers);
    status.map_or(Code::Ok, |status| status.code())
}

#[tokio::test]
async fn large_messages_are_refused() {
    let router = router().await;
    let mut client = A2aServiceClient::new(router.clone()).max_decoding_message_size(20 << 20);
    let large = message("m", &"x".repeat(11 << 20), "");
    let refused = client.send_message(of("alice", large)).await;
    assert_eq!(code(refused), Code::ResourceExhausted);
    let most = message("m", &"x".repeat((10 << 20) - 1000), "");
    assert_eq!(code(client.send_message(of("alice", most)).await), Code::Ok);
    // Prefixes with a wrong length, garbage, and an empty body.
    for body in [
        vec![0, 255, 255, 255, 255, 1, 2],
        vec![0, 0, 0, 0, 9, 1],
        b"GET / HTTP/1.1".to_vec(),
        vec![0, 0, 0, 0, 2, 255, 255],
        Vec::new(),
    ] {
        let mut request = grpc_request("GetTask", &[]);
        *request.body_mut() = Body::from(body.clone());
        let answer = router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let status = grpc_status(answer.headers());
        assert_ne!(status, Code::Ok, "{body:?}");
    }
}

/// A client that never finishes its body occupies resources only for a limited time.
#[tokio::test(start_paused = true)]
async fn slow_bodies_are_given_up() {
    let router = router().await;
    let never = || Body::from_stream(futures::stream::pending::<Result<&[u8], std::io::Error>>());
    for path in ["/", "/message:send", "/message:stream"] {
        let answer = router.clone().oneshot(post(path, never())).await.unwrap();
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT, "{path}");
    }
    let mut request = grpc_request("GetTask", &[]);
    *request.body_mut() = never();
    let answer = router.clone().oneshot(request).await.unwrap();
    assert_eq!(grpc_status(answer.headers()), Code::DeadlineExceeded);
}

/// If a request has no credentials, the server refuses the request without reading its body.
#[tokio::test(start_paused = true)]
async fn strangers_are_refused_before_their_body_comes() {
    let router = router().await;
    let mut request = grpc_request("SendMessage", &[]);
    request.headers_mut().remove("authorization");
    *request.body_mut() =
        Body::from_stream(futures::stream::pending::<Result<&[u8], std::io::Error>>());
    let begin = tokio::time::Instant::now();
    let answer = router.clone().oneshot(request).await.unwrap();
    assert_eq!(grpc_status(answer.headers()), Code::Unauthenticated);
    assert_eq!(begin.elapsed(), std::time::Duration::ZERO);
}
