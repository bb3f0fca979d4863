//! Metrics and traces of `allstop serve`. The tests read the metrics, and receive the traces as a collector.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::Value;

use crate::serve::Server;
use crate::support::{FACT_MAX, Place, Signal};

const SCRIPT: &str = "replies: [{text: Never, stall: mid_stream}]\n";

/// Trace id of the caller, and id of the caller's span.
const TRACE: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
const CALLER: u64 = 0xb7ad_6b71_6920_3331;

/// Starts a collector for OTLP over HTTP on a free port. Returns its address and the received spans. The thread of the
/// collector ends with the process.
fn collector() -> (String, Receiver<Span>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let (spans, received) = channel();
    #[expect(clippy::disallowed_methods, reason = "a server of a test")]
    std::thread::spawn(move || {
        // The exporter uses one connection at a time.
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            while let Some(request) = export(&mut stream) {
                let groups = request.resource_spans.into_iter();
                let groups = groups.flat_map(|group| group.scope_spans);
                for span in groups.flat_map(|group| group.spans) {
                    // An error is ignored, because the test may already have ended.
                    let _sent = spans.send(span);
                }
            }
        }
    });
    (address, received)
}

/// Reads one export and answers it; `None` at the end of the connection.
fn export(stream: &mut BufReader<TcpStream>) -> Option<ExportTraceServiceRequest> {
    let mut len = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            len = value.trim().parse().expect("a length");
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).ok()?;
    let answer =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
    stream.get_mut().write_all(answer).ok()?;
    Some(ExportTraceServiceRequest::decode(&*body).expect("an export"))
}

/// Sends a message without waiting for the end of its task. Returns the id of the task.
fn send(server: &Server, id: &str) -> String {
    let head = format!(
        "POST /message:send HTTP/1.1\r\ntraceparent: 00-{TRACE:032x}-{CALLER:016x}-01\r\nx-rest: "
    );
    let body = format!(
        "{{\"configuration\":{{\"returnImmediately\":true}},\"message\":{{\"messageId\":\"{id}\",\
         \"role\":\"ROLE_USER\",\"parts\":[{{\"text\":\"hello\"}}]}}}}"
    );
    let (status, body) = server.request(&head, &body).expect("an answer");
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    answer["task"]["id"].as_str().expect("an id").to_owned()
}

fn metrics(server: &Server) -> String {
    let (status, text) = server.request("GET /metrics", "").expect("an answer");
    assert_eq!(status, 200);
    text
}

#[test]
fn stop_is_in_the_metrics_and_in_the_trace_of_its_caller() {
    let place = Place::new();
    let (collector, spans) = collector();
    let model = place.script(SCRIPT);
    let server = Server::start_with(&place, &format!("--model {model} --otlp {collector}"));
    let id = send(&server, "m1");
    let seen = metrics(&server);
    assert!(
        seen.contains("allstop_executions_accepted_total 1\n"),
        "{seen}"
    );
    let stopped = server.request(&format!("POST /tasks/{id}:cancel"), "{}");
    assert_eq!(stopped.expect("an answer").0, 200);
    let seen = metrics(&server);
    for line in [
        "allstop_executions_running 0",
        "allstop_executions_waiting 0",
        "allstop_executions_ending 0",
        "allstop_executions_ended_total{state=\"canceled\"} 1",
        "allstop_stops_total{cause=\"user\"} 1",
        "allstop_stop_receipts_total{quiet=\"true\"} 1",
        "allstop_stop_to_quiet_seconds_count 1",
        "# EOF",
    ] {
        assert!(seen.lines().any(|seen| seen == line), "{line} in {seen}");
    }
    // The server sends its last spans before its process ends.
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    let span = spans.recv_timeout(FACT_MAX).expect("a span");
    assert_eq!(span.trace_id, TRACE.to_be_bytes());
    assert_eq!(span.parent_span_id, CALLER.to_be_bytes());
    let stop = span.events.iter().find(|event| event.name == "stop");
    let stop = format!("{:?}", stop.expect("a stop").attributes);
    assert!(
        stop.contains("cause.kind") && stop.contains("user"),
        "{stop}"
    );
    let state = format!("{:?}", span.attributes);
    assert!(state.contains("canceled") && state.contains(&id), "{state}");
}

#[test]
fn collector_that_hangs_delays_neither_tasks_nor_the_exit() {
    let place = Place::new();
    // The kernel accepts connections to this listener, but the test never answers them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("an address");
    let server = Server::start_with(&place, &format!("--agent echo --otlp http://{address}"));
    for number in 0..20 {
        send(&server, &format!("m{number}"));
    }
    let ended = server.running.end_by(Signal::TERM);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    let wait = ended.since_signal();
    assert!(wait < std::time::Duration::from_secs(3), "{wait:?}");
    drop(silent);
}

#[test]
fn wrong_collector_is_a_usage_error() {
    let place = Place::new();
    let serve = place.allstop().args("serve --agent echo --store :memory:");
    let ended = serve.args("--listen 127.0.0.1:0 --otlp nowhere").end();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
}
