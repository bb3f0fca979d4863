//! Access of a connection to the server with its token.

use std::time::Duration;

use allstop_copilot::{ConnectionAccess, ServedConnectionEnd};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = "replies: [{text: Hello.}]";

fn client_of(server: &TestServer) -> TestClient {
    server.client_with(ConnectionAccess::Token("secret".into()))
}

#[tokio::test]
async fn only_ping_is_answered_before_the_token() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = client_of(&server);
    let session = json!({ "sessionId": "one" });
    for (method, params) in [
        ("session.create", &session),
        ("session.list", &json!({})),
        ("runtime.shutdown", &json!({})),
        ("connect", &json!({})),
        ("connect", &json!({ "token": "" })),
        ("connect", &json!({ "token": "secre" })),
        ("connect", &json!({ "token": "secret2" })),
        // The token has an effect only as a parameter of the method `connect`.
        (
            "session.create",
            &json!({ "sessionId": "one", "token": "secret" }),
        ),
    ] {
        let answer = client.answer(method, params).await;
        assert_eq!(
            answer["error"]["code"], -32001,
            "{method} {params}: {answer}"
        );
    }
    client.request("ping", &json!({ "message": "hi" })).await;
    client
        .request("connect", &json!({ "token": "secret" }))
        .await;
    client.create("one", &json!({})).await;
    // The token of one connection does not grant access to another connection.
    let mut other = client_of(&server);
    let answer = other.answer("session.resume", &session).await;
    assert_eq!(answer["error"]["code"], -32001, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn connection_without_the_token_ends_in_time() {
    let server = TestServer::new(SCRIPT).await;
    let begin = Instant::now();
    let client = client_of(&server);
    assert_eq!(client.ended().await, ServedConnectionEnd::Unauthorised);
    assert_eq!(begin.elapsed().as_secs(), 10);
    // After the client has sent the token, the connection has no time limit.
    let mut client = client_of(&server);
    client
        .request("connect", &json!({ "token": "secret" }))
        .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    client.request("ping", &json!({ "message": "hi" })).await;
}

#[tokio::test]
async fn connection_without_the_token_may_not_send_much() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = client_of(&server);
    let frame = format!("Content-Length: 100000\r\n\r\n{}", " ".repeat(90_000));
    // The server may close the connection before it has read the last byte, so an error of the write is ignored.
    let _all = client.write(frame.as_bytes()).await;
    assert_eq!(client.ended().await, ServedConnectionEnd::Unauthorised);
}
