//! Canvases: views that one client declares and every client of the session opens.

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = "turns: [{replies: [{text: done}]}]";

fn of(mut params: Value) -> Value {
    params["sessionId"] = "s".into();
    params
}

/// Takes the next request of the server with this method. Answers it, and returns its parameters.
async fn answered(client: &mut TestClient, method: &str, result: Value) -> Value {
    let mut request = client
        .take(method, |message| message["method"] == method)
        .await;
    let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    client.message(&answer).await;
    request["params"].take()
}

async fn refused(client: &mut TestClient, method: &str, params: Value) -> String {
    let answer = client.answer(method, &of(params)).await;
    answer["error"]["message"].to_string()
}

fn counter() -> Value {
    let canvas = json!({ "id": "counter", "displayName": "Counter", "description": "Counts." });
    json!({ "canvases": [canvas], "canvasProvider": { "id": "views" } })
}

#[tokio::test]
async fn canvases_are_routed_to_the_client_that_declares_them() {
    let server = TestServer::new(SCRIPT).await;
    let mut shows = server.client();
    shows.create("s", &counter()).await;
    let mut host = server.client();
    host.request("session.resume", &of(json!({}))).await;
    let listed = host.request("session.canvas.list", &of(json!({}))).await;
    assert_eq!(listed["canvases"][0]["canvasId"], "counter", "{listed}");
    assert_eq!(listed["canvases"][0]["extensionId"], "views", "{listed}");

    let unknown = json!({ "canvasId": "map", "instanceId": "1" });
    let message = refused(&mut host, "session.canvas.open", unknown).await;
    assert!(message.contains("no client declares"), "{message}");

    let opening = of(json!({ "canvasId": "counter", "instanceId": "1", "input": 3 }));
    let id = host.send("session.canvas.open", &opening).await;
    let request = answered(&mut shows, "canvas.open", json!({ "title": "Three" })).await;
    assert_eq!(
        (&request["input"], &request["instanceId"]),
        (&json!(3), &json!("1"))
    );
    assert_eq!(host.answer_to(id).await["result"]["title"], "Three");
    assert_eq!(host.event("session.canvas.opened").await["instanceId"], "1");

    let action = of(json!({ "instanceId": "1", "actionName": "add", "input": { "by": 1 } }));
    let id = host.send("session.canvas.action.invoke", &action).await;
    let request = answered(&mut shows, "canvas.action.invoke", json!(4)).await;
    assert_eq!(
        (&request["actionName"], &request["input"]["by"]),
        (&json!("add"), &json!(1))
    );
    assert_eq!(host.answer_to(id).await["result"], json!({ "result": 4 }));

    // The canvas stays open without its client, and a client with the identity takes it over.
    shows.request("session.detach", &of(json!({}))).await;
    assert_eq!(
        host.event("session.canvas.unavailable").await["instanceId"],
        "1"
    );
    let message = refused(&mut host, "session.canvas.action.invoke", action).await;
    assert!(message.contains("disconnected"), "{message}");
    let mut again = server.client();
    let resumed = again.request("session.resume", &of(counter())).await;
    assert_eq!(resumed["openCanvases"][0]["instanceId"], "1", "{resumed}");
    let id = host
        .send("session.canvas.close", &of(json!({ "instanceId": "1" })))
        .await;
    answered(&mut again, "canvas.close", Value::Null).await;
    assert_eq!(host.answer_to(id).await["result"], json!({}));
    assert_eq!(
        host.event("session.canvas.closed").await["canvasId"],
        "counter"
    );
    let open = host
        .request("session.canvas.listOpen", &of(json!({})))
        .await;
    assert_eq!(open, json!({ "openCanvases": [] }));
}

/// A stop of the session ends the wait for a client. The receipt reports that the client may still work.
#[tokio::test]
async fn a_stop_lists_a_running_action() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &counter()).await;
    let opening = of(json!({ "canvasId": "counter", "instanceId": "1" }));
    let id = client.send("session.canvas.open", &opening).await;
    client
        .take("canvas.open", |message| message["method"] == "canvas.open")
        .await;
    let stopped = client
        .request("allstop.stop", &of(json!({ "extent": "session" })))
        .await;
    let items = stopped["receipt"]["items"].as_array().expect("items");
    let item = items.iter().find(|item| item["name"] == "canvas.open");
    assert_eq!(
        item.expect("the request")["state"],
        "unreachable",
        "{items:?}"
    );
    assert!(client.answer_to(id).await["error"].is_object());
}

#[tokio::test]
async fn canvases_of_an_earlier_session_stay_open() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let open = |canvas: &str| json!({ "instanceId": canvas, "canvasId": canvas, "extensionId": "views", "url": "a:b" });
    let mut more = counter();
    more["openCanvases"] = json!([open("counter"), open("map")]);
    client.create("s", &more).await;
    let listed = client
        .request("session.canvas.listOpen", &of(json!({})))
        .await;
    assert_eq!(listed, json!({ "openCanvases": [open("counter")] }));
}

/// Regression: parallel requests passed the limit, because an open canvas counted only after its client had answered.
#[tokio::test]
async fn parallel_requests_respect_the_limit() {
    const LIMIT: usize = 256;
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &counter()).await;
    let mut ids = Vec::new();
    for instance in 0..=LIMIT {
        let opening = of(json!({ "canvasId": "counter", "instanceId": instance.to_string() }));
        ids.push(client.send("session.canvas.open", &opening).await);
    }
    let refused = client.answer_to(ids[LIMIT]).await;
    assert!(refused["error"].to_string().contains("256"), "{refused}");
    for _ in 0..LIMIT {
        answered(&mut client, "canvas.open", json!({})).await;
    }
    for id in &ids[..LIMIT] {
        assert!(client.answer_to(*id).await["result"].is_object());
    }
}
