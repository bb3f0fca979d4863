//! The official A2A clients for Python and JavaScript, unmodified, as processes of their own.
//!
//! `cargo xtask parts` downloads them. Without Node and npm that command says so, and the tests of the JavaScript client
//! do nothing.

mod agent;
mod script;
mod server;

use script::{Client, run_scenarios};
use serde_json::json;
use server::SteppedServer;

use crate::support::{Place, Signal};

/// Scenarios with the stepped agent.
const STEPPED: &[&str] = &[
    "negotiation",
    "send",
    "send_without_waiting",
    "parts",
    "reply",
    "stream",
    "cancel",
    "resubscribe",
    "follow_up",
    "list",
    "errors",
    "legacy",
];

/// SHA-256 of `secret`.
const HASH_OF_SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

fn stepped(client: Client, binding: &str) {
    let server = SteppedServer::start();
    let url = format!("http://{}", server.address);
    run_scenarios(client, &url, binding, STEPPED, "");
    assert!(server.channel.running().is_empty(), "an executor works on");
}

/// The binary with its own agent: without authentication, and with tokens.
fn served(client: Client, binding: &str) {
    let place = Place::new();
    let serve = || {
        let serve = place
            .allstop()
            .args("serve --agent echo --listen 127.0.0.1:0 --store");
        serve.arg(place.store())
    };
    let tokens = place.file("tokens", format!("alice {HASH_OF_SECRET}\n"));
    for (serve, scenario) in [
        (serve(), "echo"),
        (serve().arg("--token-file").arg(tokens), "token"),
    ] {
        let running = serve.start();
        let url = running.line_of_stdout("listening on ");
        let tokens = json!(["secret", "wrong"]).to_string();
        run_scenarios(client, &url, binding, &[scenario], &tokens);
        assert_eq!(running.end_by(Signal::TERM).code, 143);
    }
}

#[test]
fn python_over_json_rpc() {
    stepped(Client::Python, "JSONRPC");
    served(Client::Python, "JSONRPC");
}

#[test]
fn python_over_http_json() {
    stepped(Client::Python, "HTTP+JSON");
    served(Client::Python, "HTTP+JSON");
}

#[test]
fn python_over_grpc() {
    stepped(Client::Python, "GRPC");
    served(Client::Python, "GRPC");
}

#[test]
fn javascript_over_json_rpc() {
    stepped(Client::JavaScript, "JSONRPC");
    served(Client::JavaScript, "JSONRPC");
}

#[test]
fn javascript_over_http_json() {
    stepped(Client::JavaScript, "HTTP+JSON");
    served(Client::JavaScript, "HTTP+JSON");
}

#[test]
fn javascript_over_grpc() {
    stepped(Client::JavaScript, "GRPC");
    served(Client::JavaScript, "GRPC");
}
