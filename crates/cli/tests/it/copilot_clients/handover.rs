//! A session that one server process has open, and that a client of another server process resumes.

use serde_json::{Value, json};

use super::raw_client::RawClient;
use crate::support::{Place, Running, Signal};

const SCRIPT: &str = "turns: [{replies: [{text: Hello.}]}]";
const TOOL: &str = "turns: [{replies: [{calls: [{tool: wait, arguments: {}}]}, {text: Done.}]}]";

fn server(place: &Place, script: &str) -> (Running, RawClient) {
    let model = place.script(script);
    let server = place
        .allstop()
        .args("copilot --port 0 --store")
        .arg(place.store())
        .arg("--model")
        .arg(model)
        .env("COPILOT_CONNECTION_TOKEN", "secret")
        .start();
    let port = server.line_of_stdout("listening on port ");
    let mut client = RawClient::connect(port.parse().expect("a port"));
    let connected = client.request("connect", &json!({ "token": "secret" }));
    assert_eq!(connected["result"]["ok"], true, "{connected}");
    (server, client)
}

fn answer_of(client: &mut RawClient) -> Value {
    let message = json!({ "sessionId": "one", "prompt": "hello" });
    let answer = client.request("session.sendAndWait", &message);
    answer["result"]["response"]["data"]["content"].clone()
}

#[test]
fn idle_session_moves_between_two_servers() {
    let place = Place::new();
    let session = json!({ "sessionId": "one" });
    let (first, mut here) = server(&place, SCRIPT);
    let created = here.request("session.create", &session);
    assert_eq!(created["result"]["sessionId"], "one", "{created}");
    assert_eq!(answer_of(&mut here), "Hello.");
    let (second, mut there) = server(&place, SCRIPT);
    let resumed = there.request("session.resume", &session);
    assert_eq!(resumed["result"]["sessionId"], "one", "{resumed}");
    assert_eq!(answer_of(&mut there), "Hello.");
    // The first server no longer has the session, and reports this.
    let message = json!({ "sessionId": "one", "prompt": "lost?" });
    let sent = here.request("session.send", &message);
    let error = here.event("session.error");
    assert_eq!(error["originatingMessageId"], sent["result"]["messageId"]);
    let text = error["message"].as_str().expect("a text");
    assert!(text.contains("in use by process"), "{error}");
    here.event("session.idle");
    for server in [first, second] {
        assert_eq!(server.end_by(Signal::TERM).code, 143);
    }
    place.assert_nothing_runs();
}

#[test]
fn working_session_stays_in_its_server() {
    let place = Place::new();
    let (first, mut here) = server(&place, TOOL);
    let session = json!({ "sessionId": "one", "tools": [{ "name": "wait" }] });
    here.request("session.create", &session);
    here.request(
        "session.send",
        &json!({ "sessionId": "one", "prompt": "hello" }),
    );
    let (second, mut there) = server(&place, TOOL);
    let refused = there.request("session.resume", &json!({ "sessionId": "one" }));
    let message = refused["error"]["message"].as_str().expect("an error");
    assert!(message.contains("a turn is running"), "{refused}");
    for server in [first, second] {
        assert_eq!(server.end_by(Signal::TERM).code, 143);
    }
    place.assert_nothing_runs();
}
