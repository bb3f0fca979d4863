//! Access tokens for MCP servers, which a client gives.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_scope::{RootOptions, Scope, WorkSpec};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::support::{SOON, TestClient, TestServer};

/// A model that calls the tool of the server, and then ends its turn.
const SCRIPT: &str =
    "turns: [{replies: [{calls: [{tool: s__echo, arguments: {}}]}, {text: Done.}]}]";

const DOCUMENT: &str = r#"{"resource":"test"}"#;

/// An MCP server that needs a token.
#[derive(Clone)]
struct Protected {
    state: Arc<Mutex<ProtectedState>>,
    base: String,
}

#[derive(Default)]
struct ProtectedState {
    /// The valid token.
    valid: String,
    /// True if a call with another token lacks rights, instead of a valid token.
    lacks_rights: bool,
    /// Tokens of the accepted requests.
    accepted: Vec<String>,
    calls: usize,
}

impl Protected {
    async fn serve(scope: &Scope) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("a port");
        let protected = Self {
            state: Arc::default(),
            base: format!("http://{address}"),
        };
        protected.accept("token-1");
        let app = Router::new()
            .route("/mcp", post(take))
            .route("/about", get(async || DOCUMENT))
            .with_state(protected.clone());
        let work = WorkSpec::new(ItemKind::Future, "protected server");
        let serving = scope.spawn(work, |_| async move { axum::serve(listener, app).await });
        drop(serving.expect("nothing is stopped"));
        protected
    }

    fn accept(&self, token: &str) {
        token.clone_into(&mut self.state.lock().expect("no panic").valid);
    }

    fn calls(&self) -> usize {
        self.state.lock().expect("no panic").calls
    }

    fn servers(&self) -> Value {
        let server = json!({
            "type": "http", "url": format!("{}/mcp", self.base), "tools": ["*"],
            "oauthClientId": "client-1", "oauthPublicClient": true,
        });
        json!({ "mcpServers": { "s": server }, "requestMcpApps": true })
    }
}

async fn take(State(protected): State<Protected>, headers: HeaderMap, body: String) -> Response {
    let message: Value = serde_json::from_str(&body).expect("JSON");
    let mut state = protected.state.lock().expect("no panic");
    let given = headers.get(header::AUTHORIZATION);
    let given = given.map_or("", |given| given.to_str().expect("text"));
    let is_call = message["method"] == "tools/call";
    if given != format!("Bearer {}", state.valid) {
        let lacks_rights = state.lacks_rights && is_call;
        let about = format!("resource_metadata=\"{}/about\"", protected.base);
        let (status, error) = if lacks_rights {
            (StatusCode::FORBIDDEN, "insufficient_scope")
        } else {
            (StatusCode::UNAUTHORIZED, "invalid_token")
        };
        let challenge = format!("Bearer {about}, scope=\"read\", error=\"{error}\"");
        return (status, [("www-authenticate", challenge)]).into_response();
    }
    state.accepted.push(given.to_owned());
    let result = match message["method"].as_str().expect("a method") {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"}, "ttlMs": 0, "cacheScope": "private",
        }),
        "tools/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "tools": [{"name": "echo", "inputSchema": {"type": "object"}}],
        }),
        _ => {
            state.calls += 1;
            json!({"resultType": "complete", "content": [{"type": "text", "text": "echo"}]})
        }
    };
    Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
}

fn session() -> Value {
    json!({ "sessionId": "s" })
}

async fn register(client: &mut TestClient) {
    let interest = json!({ "sessionId": "s", "eventType": "mcp.oauth_required" });
    let registered = client.request("session.eventLog.registerInterest", &interest);
    assert!(registered.await["handle"].is_string());
}

async fn answer(client: &mut TestClient, asked: &Value, result: &Value) -> Value {
    let params = json!({ "sessionId": "s", "requestId": asked["requestId"], "result": result });
    let method = "session.mcp.oauth.handlePendingRequest";
    client.answer(method, &params).await
}

async fn give(client: &mut TestClient, asked: &Value, token: &str) {
    let result = json!({ "kind": "token", "accessToken": token });
    let answered = answer(client, asked, &result).await;
    assert_eq!(answered["result"], json!({ "success": true }), "{answered}");
    let completed = client.event("mcp.oauth_completed").await;
    let expected = json!({ "requestId": asked["requestId"], "outcome": "token" });
    assert_eq!(completed, expected);
}

/// Waits until the server of the session has this status. Returns its description.
async fn status(client: &mut TestClient, wanted: &str) -> Value {
    let reached = async {
        loop {
            let listed = client.request("session.mcp.list", &session()).await;
            if listed["servers"][0]["status"] == wanted {
                return listed["servers"][0].clone();
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, reached).await.expect("the status is reached")
}

/// A client with a handler, whose server has a token.
async fn connected(server: &TestServer, protected: &Protected) -> TestClient {
    let mut client = server.client();
    client.create("s", &protected.servers()).await;
    status(&mut client, "needs-auth").await;
    register(&mut client).await;
    let asked = client.event("mcp.oauth_required").await;
    give(&mut client, &asked, "token-1").await;
    status(&mut client, "connected").await;
    let all = json!({ "sessionId": "s", "enabled": true });
    client
        .request("session.permissions.setApproveAll", &all)
        .await;
    client
}

/// True if the client has read no request that the test has not taken.
fn no_request_waits(client: &TestClient) -> bool {
    let mut untaken = client.untaken().iter();
    untaken.all(|message| message["params"]["event"]["type"] != "mcp.oauth_required")
}

fn theirs() -> Scope {
    Scope::root("theirs", RootOptions::single_runtime())
}

#[tokio::test]
async fn token_of_the_program_is_used_and_replaced() {
    let (scope, server) = (theirs(), TestServer::new(SCRIPT).await);
    let protected = Protected::serve(&scope).await;
    let mut client = server.client();
    client.create("s", &protected.servers()).await;
    let refused = status(&mut client, "needs-auth").await;
    let remedy = "it refused access with HTTP 401 Unauthorized; set `bearer_token_env`";
    let error = refused["error"].as_str().expect("an error");
    assert!(error.contains(remedy), "{error}");
    register(&mut client).await;
    let asked = client.event("mcp.oauth_required").await;
    let expected = json!({
        "requestId": asked["requestId"],
        "serverName": "s",
        "serverUrl": format!("{}/mcp", protected.base),
        "reason": "initial",
        "wwwAuthenticateParams": {
            "resourceMetadataUrl": format!("{}/about", protected.base),
            "scope": "read",
            "error": "invalid_token",
        },
        "resourceMetadata": DOCUMENT,
        "staticClientConfig": { "clientId": "client-1", "publicClient": true },
    });
    assert_eq!(asked, expected);
    give(&mut client, &asked, "token-1").await;
    status(&mut client, "connected").await;

    let all = json!({ "sessionId": "s", "enabled": true });
    let approve = "session.permissions.setApproveAll";
    client.request(approve, &all).await;
    protected.accept("token-2");
    let message = json!({ "sessionId": "s", "prompt": "go" });
    client.request("session.send", &message).await;
    let asked = client.event("mcp.oauth_required").await;
    assert_eq!(asked["reason"], "refresh");
    // A declined refresh asks for a new login.
    let declined = answer(&mut client, &asked, &json!({ "kind": "cancelled" })).await;
    assert_eq!(declined["result"], json!({ "success": true }));
    client.event("mcp.oauth_completed").await;
    let asked = client.event("mcp.oauth_required").await;
    assert_eq!(asked["reason"], "reauth");
    give(&mut client, &asked, "token-2").await;
    client.event("session.idle").await;
    assert_eq!(protected.calls(), 1);
    let accepted = protected.state.lock().expect("no panic").accepted.clone();
    assert!(accepted.contains(&"Bearer token-1".to_owned()));
    assert!(accepted.contains(&"Bearer token-2".to_owned()));

    let seen = json!(client.seen()).to_string();
    assert!(!seen.contains("token-1") && !seen.contains("token-2"));
    assert_eq!(server.files_with("token-1"), Vec::<String>::new());
}

#[tokio::test]
async fn declined_request_leaves_the_server_without_a_token() {
    let (scope, server) = (theirs(), TestServer::new(SCRIPT).await);
    let protected = Protected::serve(&scope).await;
    let mut client = server.client();
    client.create("s", &protected.servers()).await;
    register(&mut client).await;
    let asked = client.event("mcp.oauth_required").await;
    // The request stays open after an invalid answer, and the error does not quote the answer.
    for wrong in [
        json!({ "kind": "secret-1" }),
        json!({ "kind": "token", "accessToken": "secret-1\n" }),
        json!({ "kind": "token", "accessToken": "secret-1", "tokenType": "secret-1" }),
    ] {
        let refused = answer(&mut client, &asked, &wrong).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(!refused.to_string().contains("secret-1"), "{refused}");
    }
    let declined = json!({ "kind": "cancelled" });
    let answered = answer(&mut client, &asked, &declined).await;
    assert_eq!(answered["result"], json!({ "success": true }));
    let completed = client.event("mcp.oauth_completed").await;
    assert_eq!(completed["outcome"], "cancelled");
    let refused = status(&mut client, "needs-auth").await;
    let error = refused["error"].as_str().expect("an error");
    assert!(error.contains("the program of the session"), "{error}");
    let late = answer(&mut client, &asked, &declined).await;
    assert_eq!(late["result"], json!({ "success": false }));
    assert!(no_request_waits(&client));
}

#[tokio::test]
async fn request_ends_with_its_client_and_goes_to_the_next_one() {
    let (scope, server) = (theirs(), TestServer::new(SCRIPT).await);
    let protected = Protected::serve(&scope).await;
    let (mut first, mut second) = (server.client(), server.client());
    first.create("s", &protected.servers()).await;
    second.request("session.resume", &session()).await;
    register(&mut first).await;
    let asked = first.event("mcp.oauth_required").await;
    drop(first.end().await);
    let completed = second.event("mcp.oauth_completed").await;
    let expected = json!({ "requestId": asked["requestId"], "outcome": "cancelled" });
    assert_eq!(completed, expected);
    status(&mut second, "needs-auth").await;
    second.event("mcp.oauth_required").await;
    register(&mut second).await;
    let asked = second.event("mcp.oauth_required").await;
    give(&mut second, &asked, "token-1").await;
    status(&mut second, "connected").await;
}

#[tokio::test]
async fn stop_of_the_turn_withdraws_the_request_of_its_call() {
    let (scope, server) = (theirs(), TestServer::new(SCRIPT).await);
    let protected = Protected::serve(&scope).await;
    let mut client = connected(&server, &protected).await;
    protected.accept("token-2");
    let message = json!({ "sessionId": "s", "prompt": "go" });
    client.request("session.send", &message).await;
    let asked = client.event("mcp.oauth_required").await;
    let session = session();
    let aborted = timeout(SOON, client.request("session.abort", &session));
    let aborted = aborted
        .await
        .expect("the abort does not wait for the token");
    let items = aborted["receipt"]["items"].as_array().expect("items");
    assert!(
        items
            .iter()
            .any(|item| item["name"] == "s__echo" && item["state"] == "stopped"),
        "{aborted}"
    );
    let completed = client.event("mcp.oauth_completed").await;
    assert_eq!(completed["outcome"], "cancelled");
    let token = json!({ "kind": "token", "accessToken": "token-2" });
    let late = answer(&mut client, &asked, &token).await;
    assert_eq!(late["result"], json!({ "success": false }));
    assert_eq!(protected.calls(), 0);
    // The connection has not ended.
    status(&mut client, "connected").await;
}

#[tokio::test]
async fn end_of_the_session_withdraws_the_request() {
    let (scope, server) = (theirs(), TestServer::new(SCRIPT).await);
    let protected = Protected::serve(&scope).await;
    let mut client = server.client();
    client.create("s", &protected.servers()).await;
    register(&mut client).await;
    client.event("mcp.oauth_required").await;
    let stop = json!({ "sessionId": "s", "extent": "session" });
    let stopped = timeout(SOON, client.request("allstop.stop", &stop));
    let stopped = stopped.await.expect("the stop does not wait for the token");
    assert!(stopped["receipt"]["items"].is_array(), "{stopped}");
    let completed = client.event("mcp.oauth_completed").await;
    assert_eq!(completed["outcome"], "cancelled");
}

#[tokio::test]
async fn view_of_a_server_calls_its_tool_with_more_rights() {
    let (scope, server) = (theirs(), TestServer::new(SCRIPT).await);
    let protected = Protected::serve(&scope).await;
    let mut client = connected(&server, &protected).await;
    protected.accept("token-2");
    protected.state.lock().expect("no panic").lacks_rights = true;
    let mut call = json!({
        "sessionId": "s", "serverName": "s", "originServerName": "s", "toolName": "echo", "arguments": {},
    });
    let method = "session.mcp.apps.callTool";
    // Two calls without the right cause one request.
    let sent = [
        client.send(method, &call).await,
        client.send(method, &call).await,
    ];
    let asked = client.event("mcp.oauth_required").await;
    assert_eq!(asked["reason"], "upscope");
    give(&mut client, &asked, "token-2").await;
    for sent in sent {
        let called = client.answer_to(sent).await;
        let content = json!([{ "type": "text", "text": "echo" }]);
        let expected = json!({ "content": content, "isError": false });
        assert_eq!(called["result"], expected);
    }
    assert!(no_request_waits(&client));
    call["originServerName"] = "other".into();
    let refused = client.answer(method, &call).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let mut other = server.client();
    other.request("session.resume", &session()).await;
    call["originServerName"] = "s".into();
    let refused = other.answer(method, &call).await;
    assert!(refused.to_string().contains("mcp-apps"), "{refused}");
}
