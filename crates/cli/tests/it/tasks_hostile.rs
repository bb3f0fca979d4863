//! `allstop tasks` against a server that sends false or endless data.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::support::{Ended, FACT_MAX, Place};

/// Maximum number of connections that one command may open.
const CONNECTIONS_MAX: usize = 8;

/// Starts a server that calls `answer` for each request. `answer` gets the first line of the request, and writes the
/// answer.
#[expect(clippy::disallowed_methods, reason = "a server of a test")]
fn serve(answer: fn(&str, &mut TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().take(CONNECTIONS_MAX) {
            let mut stream = stream.expect("a connection");
            let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
            let mut first = String::new();
            let read = reader.read_line(&mut first);
            let mut line = String::new();
            while read.is_ok() && reader.read_line(&mut line).is_ok() && line.trim() != "" {
                line.clear();
            }
            answer(&first, &mut stream);
        }
    });
    address
}

fn write_json(stream: &mut TcpStream, json: &str) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    let length = json.len();
    let text = format!("{head}\r\ncontent-length: {length}\r\n\r\n{json}");
    // An error is ignored, because the client may already have disconnected.
    let _gone = stream.write_all(text.as_bytes());
}

fn tasks(place: &Place, server: SocketAddr, args: &str) -> Ended {
    let tasks = place.allstop().args("tasks --server");
    let running = tasks.arg(format!("http://{server}")).args(args).start();
    running.end(FACT_MAX)
}

#[test]
fn answer_without_end_is_refused() {
    let place = Place::new();
    let server = serve(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"tasks\": \"";
        let mut sent = stream.write_all(head.as_bytes());
        let chunk = vec![b'a'; 64 * 1024];
        // The loop ends when the client closes the connection.
        while sent.is_ok() {
            sent = stream.write_all(&chunk);
        }
    });
    let ended = tasks(&place, server, "list");
    assert_eq!(ended.code, 1);
    assert!(
        ended.stderr.contains("more than 64 MiB"),
        "{}",
        ended.stderr
    );
}

#[test]
fn stop_is_no_success_unless_this_task_has_ended() {
    let place = Place::new();
    let other: fn(&str, &mut TcpStream) =
        |line, stream| answer_stop(line, stream, "t2", "COMPLETED");
    let working: fn(&str, &mut TcpStream) =
        |line, stream| answer_stop(line, stream, "t1", "WORKING");
    for (answer, said) in [(other, "with task t2"), (working, "it is unknown whether")] {
        let ended = tasks(&place, serve(answer), "stop t1");
        assert_eq!(ended.code, 1, "{said}: {}", ended.stdout);
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
}

#[test]
fn stop_without_a_worker_answer_is_pending() {
    let place = Place::new();
    let pending: fn(&str, &mut TcpStream) = |line, stream| {
        let progress = if line.contains(":cancel") {
            "queued"
        } else {
            "requested"
        };
        let task = format!(
            r#"{{"id": "t1", "status": {{"state": "TASK_STATE_WORKING"}},
            "metadata": {{"https://allstop.dev/a2a/receipt/v1": {{"requestedStop": "{progress}"}}}}}}"#
        );
        let is_list = line.contains("/tasks?");
        let list = format!(r#"{{"tasks": [{task}]}}"#);
        write_json(stream, if is_list { &list } else { &task });
    };
    let server = serve(pending);
    let said = "the stop request is recorded; the task's worker has not confirmed it yet";
    let stopped = tasks(&place, server, "stop t1");
    assert_eq!(stopped.code, 1, "{}", stopped.stderr);
    for said in [
        said,
        "A worker carries out the stop",
        "allstop tasks watch t1",
    ] {
        assert!(stopped.stderr.contains(said), "{}", stopped.stderr);
    }
    assert!(!stopped.stderr.contains("unknown"), "{}", stopped.stderr);
    let shown = tasks(&place, server, "show t1").ok().stdout;
    assert!(shown.contains(said), "{shown}");
    let listed = tasks(&place, server, "list").ok().stdout;
    assert!(listed.contains("working, stop requested"), "{listed}");
}

/// A server ends a stream with an error event if the token of its client is revoked.
#[test]
fn watch_ends_with_the_error_of_its_stream() {
    let place = Place::new();
    let revoking: fn(&str, &mut TcpStream) = |line, stream| {
        let task = r#"{"id": "t1", "status": {"state": "TASK_STATE_WORKING"}}"#;
        if line.contains("subscribe") {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close";
            let error = r#"{"error": {"code": 401, "status": "UNAUTHENTICATED",
                "message": "the token of this stream was revoked"}}"#;
            let error = error.replace('\n', "");
            let text = format!(
                "{head}\r\n\r\nid: 1\ndata: {{\"task\": {task}}}\n\nevent: error\ndata: {error}\n\n"
            );
            let _gone = stream.write_all(text.as_bytes());
        } else if line.contains("/tasks?") {
            write_json(stream, &format!(r#"{{"tasks": [{task}]}}"#));
        } else {
            write_json(stream, task);
        }
    };
    for flags in ["watch t1", "watch t1 --json"] {
        let ended = tasks(&place, serve(revoking), flags);
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        let reason = "the token of this stream was revoked";
        assert!(ended.stderr.contains(reason), "{}", ended.stderr);
        assert!(ended.stderr.contains("ALLSTOP_TOKEN"), "{}", ended.stderr);
    }
}

/// Answers a stop with this task id and state, and all other requests with the working task `t1`.
fn answer_stop(line: &str, stream: &mut TcpStream, id: &str, state: &str) {
    let (id, state) = if line.contains(":cancel") {
        (id, state)
    } else {
        ("t1", "WORKING")
    };
    let json = format!(r#"{{"id": "{id}", "status": {{"state": "TASK_STATE_{state}"}}}}"#);
    write_json(stream, &json);
}
