//! The official A2A clients for Python and JavaScript, unmodified, as separate processes.
//!
//! `cargo xtask parts` downloads the clients. If Node or npm is missing, this command prints a note, and the tests of
//! the JavaScript client are skipped.

mod agent;
mod documented;
mod script;
mod server;

use script::{Client, Scenario, run_scenarios};
use serde_json::json;
use server::SteppedServer;

use crate::support::{Place, Signal};

/// Scenarios with the stepped agent, which follows the steps in each message.
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
    "push",
];

/// Scenarios with the stepped agent for the clients of version 0.3.
const STEPPED_V0_3: &[&str] = &[
    "card",
    "send",
    "send_without_waiting",
    "parts",
    "reply",
    "stream",
    "cancel",
    "resubscribe",
    "follow_up",
    "errors",
    "push",
];

/// SHA-256 of the token `secret`.
const HASH_OF_SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// Runs all scenarios of a client: against the stepped agent, and against two servers of the binary, one of which
/// requires tokens.
fn all_scenarios(client: Client, binding: &str, stepped_names: &[&str]) {
    let place = Place::new();
    let serve = |store: &str| {
        let serve = place
            .allstop()
            .args("serve --agent echo --listen 127.0.0.1:0 --store");
        serve.arg(place.path(store))
    };
    let tokens = place.file("tokens", format!("alice {HASH_OF_SECRET}\n"));
    let open = serve("open.db").start();
    let with_tokens = serve("tokens.db").arg("--token-file").arg(tokens).start();
    let stepped = SteppedServer::start();

    let stepped_url = format!("http://{}", stepped.address);
    let open_url = open.line_of_stdout("listening on ");
    let with_tokens_url = with_tokens.line_of_stdout("listening on ");
    let mut scenarios: Vec<Scenario<'_>> = stepped_names
        .iter()
        .map(|name| (*name, stepped_url.as_str()))
        .collect();
    scenarios.extend([("echo", open_url.as_str()), ("token", &with_tokens_url)]);
    let tokens = json!(["secret", "wrong"]).to_string();
    run_scenarios(client, binding, &scenarios, &tokens);

    assert!(stepped.channel.running().is_empty(), "an executor works on");
    for server in [open, with_tokens] {
        assert_eq!(server.end_by(Signal::TERM).code, 143);
    }
}

#[test]
fn python_over_json_rpc() {
    all_scenarios(Client::Python, "JSONRPC", STEPPED);
}

#[test]
fn python_over_http_json() {
    all_scenarios(Client::Python, "HTTP+JSON", STEPPED);
}

#[test]
fn python_over_grpc() {
    all_scenarios(Client::Python, "GRPC", STEPPED);
}

#[test]
fn javascript_over_json_rpc() {
    all_scenarios(Client::JavaScript, "JSONRPC", STEPPED);
}

#[test]
fn javascript_over_http_json() {
    all_scenarios(Client::JavaScript, "HTTP+JSON", STEPPED);
}

#[test]
fn javascript_over_grpc() {
    all_scenarios(Client::JavaScript, "GRPC", STEPPED);
}

#[test]
fn python_of_version_0_3() {
    // Only the Python client has a problem with comments in silent streams.
    let names = [STEPPED_V0_3, &["silence"]].concat();
    all_scenarios(Client::PythonV03, "JSONRPC", &names);
}

#[test]
fn javascript_of_version_0_3() {
    all_scenarios(Client::JavaScriptV03, "JSONRPC", STEPPED_V0_3);
}
