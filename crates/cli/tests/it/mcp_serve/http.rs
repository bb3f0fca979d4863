//! `allstop mcp serve --http`: access, and lost connections.

use std::io::Read as _;
use std::time::Duration;

use serde_json::json;

use super::http_client::{ANN, BOB, HttpServer, call, initialize};
use super::{wait_for_no_sleeper, wait_for_sleeper};
use crate::support::{Place, Signal};

#[test]
fn session_runs_commands_and_shutdown_stops_them() {
    let place = Place::new();
    let server = HttpServer::start(&place, "");
    let session = server.session(&[]);
    let result = server.result(&[&session], "exec", &json!({"command": "echo hello"}));
    assert_eq!(result["structuredContent"]["output"], "hello\n");
    server.result(
        &[&session],
        "background",
        &json!({"command": place.sleeper()}),
    );
    wait_for_sleeper(&place);
    let ended = server.running.end_by(Signal::TERM);
    assert_eq!(ended.code, 143);
    assert!(
        ended.stderr.contains("nothing is left running"),
        "{}",
        ended.stderr
    );
    place.assert_nothing_runs();
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let place = Place::new();
    let server = HttpServer::start(&place, "");
    for (headers, expected) in [
        (vec!["Host: evil.example"], 401),
        (vec!["Host: evil.example:80"], 401),
        (vec!["Origin: http://evil.example"], 403),
        (vec!["Origin: null"], 403),
        (vec!["Origin: http://localhost.evil.example"], 403),
        (vec!["Origin: http://localhost:6274"], 200),
        (vec!["Host: localhost"], 200),
    ] {
        let response = server.post(&headers, &initialize());
        assert_eq!(response.status, expected, "{headers:?} {}", response.body);
    }
}

#[test]
fn commands_belong_to_the_sender_of_their_token() {
    let place = Place::new();
    let server = HttpServer::for_two(&place);
    for headers in [&[][..], &["Authorization: Bearer wrong"]] {
        assert_eq!(server.post(headers, &initialize()).status, 401);
    }
    let (ann, bob) = (ANN, BOB);
    let of_ann = server.session(&[ann]);
    let of_bob = server.session(&[bob]);
    // With a token, the host may be the name of a machine in a network.
    let named = server.post(&["Host: build.example", ann], &initialize());
    assert_eq!(named.status, 200);
    let started = server.result(
        &[ann, &of_ann],
        "background",
        &json!({"command": place.sleeper()}),
    );
    let id = &started["structuredContent"]["id"];
    let foreign = server.result(&[bob, &of_bob], "stop", &json!({"id": id}));
    assert_eq!(foreign["isError"], true, "{foreign}");
    let seen = server.result(&[bob, &of_bob], "preview", &json!({}));
    assert_eq!(seen["structuredContent"]["commands"], json!([]));
    wait_for_sleeper(&place);
    let stopped = server.result(&[ann, &of_ann], "stop", &json!({"id": id}));
    assert_eq!(stopped["structuredContent"]["state"], "stopped");
}

#[test]
fn wrong_flags_are_usage_errors() {
    let place = Place::new();
    for (flags, expected) in [
        ("--http 0.0.0.0:0", "reachable from other machines"),
        ("--token-file tokens", "need --http"),
        ("--http 127.0.0.1:0 --token-file absent", "absent"),
        ("--max-commands 0", "1 or more"),
    ] {
        let ended = place.allstop().args("mcp serve").args(flags).end();
        assert_eq!(ended.code, 2, "{flags} {ended:?}");
        assert!(ended.stderr.contains(expected), "{flags} {}", ended.stderr);
    }
}

/// From revision 2026-07-28 on, a client cancels a request when it closes the response stream.
#[test]
fn closed_response_stream_without_a_session_stops_its_command() {
    let place = Place::new();
    let server = HttpServer::start(&place, "");
    let mut message = call(3, "exec", &json!({"command": place.sleeper()}));
    let key = |name: &str| format!("io.modelcontextprotocol/{name}");
    let meta = &mut message["params"]["_meta"];
    meta[key("protocolVersion")] = "2026-07-28".into();
    meta[key("clientInfo")] = json!({"name": "test", "version": "1"});
    meta[key("clientCapabilities")] = json!({});
    let headers = [
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: exec",
    ];
    let mut connection = server.send("POST", &headers, &message);
    wait_for_sleeper(&place);
    // The first progress notification shows that the response stream is open.
    let mut read = String::new();
    let mut buffer = [0; 4096];
    while !read.contains("notifications/progress") {
        let len = connection.read(&mut buffer).expect("the response");
        assert_ne!(len, 0, "{read}");
        read += &String::from_utf8_lossy(&buffer[..len]);
    }
    drop(connection);
    wait_for_no_sleeper(&place);
    assert!(!server.running.ends_within(Duration::ZERO));
}
