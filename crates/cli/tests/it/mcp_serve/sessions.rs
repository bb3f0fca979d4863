//! Sessions of `allstop mcp serve --http`: their owners and their ends.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http_client::{ANN, BOB, HttpServer, Response, call};
use super::{stubborn, wait_for_no_sleeper, wait_for_sleeper};
use crate::support::wait::eventually;
use crate::support::{FACT_MAX, Place, Signal};

/// Maximum time from the end of a session to the end of its command, which ends at SIGTERM. A library waits 5 seconds
/// for the answers of an ended session.
const SESSION_STOP_MAX: Duration = Duration::from_secs(4);

fn cancellation(request: u64) -> Value {
    let params = json!({"requestId": request});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

/// Before revision 2026-07-28, a lost connection is no cancellation (section "Streamable HTTP").
#[test]
fn lost_connection_of_a_session_stops_nothing() {
    let place = Place::new();
    let server = HttpServer::start(&place, "");
    let session = server.session(&[]);
    let command = json!({"command": place.sleeper()});
    let connection = server.send("POST", &[&session], &call(3, "exec", &command));
    wait_for_sleeper(&place);
    drop(connection);
    let seen = server.result(&[&session], "preview", &json!({}));
    assert_eq!(seen["structuredContent"]["commands"][0]["state"], "running");
    assert_eq!(server.post(&[&session], &cancellation(3)).status, 202);
    wait_for_no_sleeper(&place);
}

#[test]
fn end_of_a_session_stops_its_requests_but_not_the_background() {
    let place = Place::new();
    let server = HttpServer::start(&place, "");
    let session = server.session(&[]);
    let command = json!({"command": place.sleeper()});
    let _connection = server.send("POST", &[&session], &call(3, "exec", &command));
    wait_for_sleeper(&place);
    let watcher = json!({"command": "echo up; exec sleep 1000"});
    let started = server.result(&[&session], "background", &watcher);
    let before = Instant::now();
    assert_eq!(server.delete(&[&session]).status, 204);
    wait_for_no_sleeper(&place);
    assert!(
        before.elapsed() < SESSION_STOP_MAX,
        "{:?}",
        before.elapsed()
    );
    let next = server.session(&[]);
    let receipt = eventually("the receipt", || {
        let ended = server.result(&[&next], "receipt", &json!({}));
        (ended["isError"] == false).then(|| ended["structuredContent"]["receipt"].clone())
    });
    assert_eq!(receipt["cause"]["kind"], "disconnect", "{receipt}");
    let id = &started["structuredContent"]["id"];
    let seen = server.result(&[&next], "preview", &json!({"id": id}));
    assert_eq!(seen["structuredContent"]["commands"][0]["state"], "running");
}

#[test]
fn session_is_absent_for_other_senders() {
    let place = Place::new();
    let server = HttpServer::for_two(&place);
    let session = server.session(&[ANN]);
    let command = json!({"command": format!("echo secret of ann; {}", place.sleeper())});
    let connection = server.send("POST", &[ANN, &session], &call(3, "exec", &command));
    wait_for_sleeper(&place);
    let of_bob = [BOB, session.as_str()];
    for event in ["0/0", "0/1", "1/0"] {
        let last = format!("Last-Event-ID: {event}");
        let stream = server.send("GET", &[BOB, &session, &last], &Value::Null);
        let stream = Response::read(stream);
        assert_eq!(stream.status, 404, "{}", stream.body);
    }
    assert_eq!(server.post(&of_bob, &cancellation(3)).status, 404);
    let preview = call(4, "preview", &json!({}));
    assert_eq!(server.post(&of_bob, &preview).status, 404);
    assert_eq!(server.delete(&of_bob).status, 404);
    let unknown = "Mcp-Session-Id: 7d1e";
    assert_eq!(server.delete(&[BOB, unknown]).status, 404);
    let seen = server.result(&[ANN, &session], "preview", &json!({}));
    assert_eq!(seen["structuredContent"]["commands"][0]["state"], "running");
    assert_eq!(server.delete(&[ANN, &session]).status, 204);
    wait_for_no_sleeper(&place);
    drop(connection);
}

#[test]
fn client_that_waits_receives_the_end_of_its_command_at_a_shutdown() {
    let place = Place::new();
    let server = HttpServer::start(&place, "--grace 200ms");
    let session = server.session(&[]);
    let command = json!({"command": stubborn(&place)});
    let calls: Vec<_> = (3..9)
        .map(|id| {
            (
                id,
                server.send("POST", &[&session], &call(id, "exec", &command)),
            )
        })
        .collect();
    wait_for_sleeper(&place);
    let mut running = server.running;
    running.signal(Signal::TERM);
    for (id, connection) in calls {
        let answer = Response::read(connection).answer(id);
        assert_eq!(
            answer["result"]["structuredContent"]["state"], "stopped",
            "{answer}"
        );
    }
    assert_eq!(running.end(FACT_MAX).code, 143);
    place.assert_nothing_runs();
}
