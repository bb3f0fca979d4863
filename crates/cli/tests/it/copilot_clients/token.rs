//! Access to a server on a port, by its token.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{FACT_MAX, Place, Signal};

/// Code of a request that is refused for want of the token.
const UNAUTHORISED: i64 = -32001;

/// A client that writes frames by hand.
struct RawClient {
    stream: BufReader<TcpStream>,
    requests: u64,
}

impl RawClient {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream
            .set_read_timeout(Some(FACT_MAX))
            .expect("a limit of reads");
        Self {
            stream: BufReader::new(stream),
            requests: 0,
        }
    }

    /// Sends a request; returns its answer.
    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let body = body.to_string();
        let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let stream = self.stream.get_mut();
        stream.write_all(frame.as_bytes()).expect("it is sent");
        loop {
            let message = self.message();
            // Events have no id.
            if message.get("id").is_some() {
                assert_eq!(message["id"], id, "{message}");
                return message;
            }
        }
    }

    fn message(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a header");
        let len = line.trim_end().strip_prefix("Content-Length: ");
        let len: usize = len.and_then(|len| len.parse().ok()).expect("a length");
        self.stream.read_line(&mut line).expect("an empty line");
        assert!(line.ends_with("\r\n\r\n"), "{line:?}");
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body).expect("a body");
        serde_json::from_slice(&body).expect("JSON")
    }

    #[track_caller]
    fn assert_refused(&mut self, method: &str, params: &Value) -> String {
        let answer = self.request(method, params);
        assert_eq!(answer["error"]["code"], UNAUTHORISED, "{answer}");
        assert_eq!(answer.get("result"), None, "{answer}");
        answer["error"]["message"].to_string()
    }
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
    client.assert_refused("session.create", &session);
    client.assert_refused("connect", &json!({}));
    let wrong = client.assert_refused("connect", &json!({ "token": "wrong" }));
    assert!(wrong.contains("the token is wrong"), "{wrong}");
    client.assert_refused("connect", &json!({ "token": "" }));
    client.assert_refused("session.list", &json!({}));
    client.assert_refused("runtime.shutdown", &json!({}));

    let answer = client.request("connect", &json!({ "token": "secret" }));
    assert_eq!(answer["result"]["ok"], true, "{answer}");
    let answer = client.request("session.create", &session);
    assert_eq!(answer["result"], session, "{answer}");
    let message = json!({ "sessionId": "one", "prompt": "hello" });
    let answer = client.request("session.sendAndWait", &message);
    let content = &answer["result"]["response"]["data"]["content"];
    assert_eq!(content, "Hello.", "{answer}");

    // The token of one connection does not open another one.
    RawClient::connect(port).assert_refused("session.resume", &session);

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
