//! Access to a Copilot server on a port, which requires a token.

use serde_json::{Value, json};

use super::raw_client::RawClient;
use crate::support::{Place, Signal, eventually};

/// Error code of a request without the token.
const UNAUTHORISED: i64 = -32001;

#[track_caller]
fn assert_refused(client: &mut RawClient, method: &str, params: &Value) -> String {
    let answer = client.request(method, params);
    assert_eq!(answer["error"]["code"], UNAUTHORISED, "{answer}");
    assert_eq!(answer.get("result"), None, "{answer}");
    answer["error"]["message"].to_string()
}

#[test]
fn port_serves_only_with_the_token() {
    let place = Place::new();
    let model = place.script("turns: [{replies: [{text: Hello.}]}]");
    let server = place
        .allstop()
        .args("copilot --port 0 --store")
        .arg(place.store())
        .arg("--model")
        .arg(model)
        .env("COPILOT_CONNECTION_TOKEN", "secret")
        .start();
    let port = server.line_of_stdout("listening on port ");
    let port: u16 = port.parse().expect("a port");

    let session = json!({ "sessionId": "one" });
    let mut client = RawClient::connect(port);
    assert_refused(&mut client, "session.create", &session);
    assert_refused(&mut client, "connect", &json!({}));
    let wrong = assert_refused(&mut client, "connect", &json!({ "token": "wrong" }));
    assert!(wrong.contains("the token is wrong"), "{wrong}");
    assert_refused(&mut client, "connect", &json!({ "token": "" }));
    assert_refused(&mut client, "session.list", &json!({}));
    assert_refused(&mut client, "runtime.shutdown", &json!({}));

    let answer = client.request("connect", &json!({ "token": "secret" }));
    assert_eq!(answer["result"]["ok"], true, "{answer}");
    let answer = client.request("session.create", &session);
    assert_eq!(answer["result"]["sessionId"], "one", "{answer}");
    let message = json!({ "sessionId": "one", "prompt": "hello" });
    let answer = client.request("session.sendAndWait", &message);
    let content = &answer["result"]["response"]["data"]["content"];
    assert_eq!(content, "Hello.", "{answer}");

    // Each connection must send the token itself.
    assert_refused(&mut RawClient::connect(port), "session.resume", &session);

    assert_eq!(server.end_by(Signal::TERM).code, 143);
    place.assert_nothing_runs();
}

#[test]
fn port_without_a_token_is_wrong_usage() {
    let place = Place::new();
    for token in [None, Some("")] {
        let serve = place.allstop().args("copilot --port 0 --store");
        let serve = serve.arg(place.store());
        let serve = match token {
            Some(token) => serve.env("COPILOT_CONNECTION_TOKEN", token),
            None => serve,
        };
        let ended = serve.end();
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{ended:#?}");
        let is_named = ended.stderr.contains("COPILOT_CONNECTION_TOKEN is not set");
        assert!(is_named, "{ended:#?}");
    }
}

/// Regression: the server outlived its killed program.
#[test]
fn headless_server_on_a_port_ends_with_its_killed_program() {
    let place = Place::new();
    let server = place
        .allstop()
        .args("copilot --headless --port 0 --store")
        .arg(place.store())
        .env("COPILOT_CONNECTION_TOKEN", "secret")
        // The shell is the program of the server.
        .by_script("\"$0\" \"$@\" & echo server $!; wait")
        .start();
    let pid = server.line_of_stdout("server ");
    let port = server.line_of_stdout("listening on port ");
    let mut client = RawClient::connect(port.parse().expect("a port"));
    let answer = client.request("connect", &json!({ "token": "secret" }));
    assert_eq!(answer["result"]["ok"], true, "{answer}");
    let folder = std::path::PathBuf::from(format!("/proc/{pid}"));
    assert!(folder.exists(), "it runs as long as its program");
    server.end_by(Signal::KILL);
    eventually("the server has ended", || (!folder.exists()).then_some(()));
    place.assert_nothing_runs();
}
