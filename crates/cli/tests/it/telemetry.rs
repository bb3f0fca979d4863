//! Metrics of `allstop serve`, and traces of all commands. The tests read the metrics, and receive the traces as a
//! collector.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use allstop_testkit::nats_server::NatsServer;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AttributeValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message as _;
use serde_json::Value;

use crate::serve::Server;
use crate::support::mcp_server::shell_server;
use crate::support::{FACT_MAX, Place, Signal, eventually};

const SCRIPT: &str =
    "replies: [{calls: [{tool: shell, arguments: {command: touch ready; sleep 600}}]}]\n";

/// Trace id of the caller, and id of the caller's span.
const TRACE: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
const CALLER: u64 = 0xb7ad_6b71_6920_3331;

/// Starts a collector for OTLP over HTTP on a free port. Returns its address and the received spans, each with the attributes
/// of its process too. The thread of the collector ends with the process.
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
                for span in request.resource_spans.into_iter().flat_map(spans_of) {
                    // An error is ignored, because the test may already have ended.
                    let _sent = spans.send(span);
                }
            }
        }
    });
    (address, received)
}

/// Spans of a process, each with the attributes of the process too.
fn spans_of(group: ResourceSpans) -> impl Iterator<Item = Span> {
    let process = group.resource.unwrap_or_default().attributes;
    let spans = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
    spans.map(move |mut span| {
        span.attributes.extend(process.iter().cloned());
        span
    })
}

/// Text of an attribute; the JSON-like form of a list.
fn text(value: &AnyValue) -> String {
    match value.value.as_ref() {
        Some(AttributeValue::StringValue(text)) => text.clone(),
        Some(AttributeValue::IntValue(number)) => number.to_string(),
        Some(AttributeValue::BoolValue(value)) => value.to_string(),
        Some(AttributeValue::ArrayValue(list)) => {
            let texts: Vec<String> = list.values.iter().map(text).collect();
            format!("[{}]", texts.join(","))
        }
        other => format!("{other:?}"),
    }
}

/// Text of the attribute with this name; empty if it is absent.
fn attribute(span: &Span, name: &str) -> String {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key == name);
    let value = found.and_then(|attribute: &KeyValue| attribute.value.as_ref());
    value.map(text).unwrap_or_default()
}

/// Spans until the span with this name.
fn spans_until(spans: &Receiver<Span>, last: &str) -> Vec<Span> {
    let mut received = Vec::new();
    loop {
        let span = spans.recv_timeout(FACT_MAX).expect("a span");
        let is_last = span.name == last;
        received.push(span);
        if is_last {
            return received;
        }
    }
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no span {name:?} in {spans:#?}"))
}

/// Names of a span and of the spans above it, from the outermost.
fn path(spans: &[Span], span: &Span) -> String {
    let above = spans
        .iter()
        .find(|above| above.span_id == span.parent_span_id);
    match above {
        Some(above) => format!("{} > {}", path(spans, above), span.name),
        None => span.name.clone(),
    }
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
        "POST /message:send HTTP/1.1\r\ntraceparent: 00-{TRACE:032x}-{CALLER:016x}-01\r\n\
         tracestate: vendor=a\r\nbaggage: user=7\r\nx-rest: "
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
    let server = Server::start_with(&place, &format!("--model {model} --yes --otlp {collector}"));
    let id = send(&server, "m1");
    // A task that is stopped before its turn begins has no span of a turn.
    let ready = place.work().join("ready");
    eventually("the call", || ready.exists().then_some(()));
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
    let spans = spans_until(&spans, "task execution");
    let span = named(&spans, "task execution");
    assert_eq!(span.trace_state, "vendor=a");
    let turn = named(&spans, "invoke_agent allstop");
    assert_eq!(turn.parent_span_id, span.span_id);
    assert_eq!(
        (&turn.trace_id, &*turn.trace_state),
        (&span.trace_id, "vendor=a")
    );
    assert_eq!(attribute(turn, "allstop.stop.cause"), "user");
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

/// Tool call with words that must not be in a trace.
const SECRETIVE: &str = "replies: [{text: Answer-7, calls: [{tool: shell, arguments: {command: echo result-7}}]}, {text: Done-7}]\n";

#[test]
fn run_is_traced_without_its_texts() {
    let place = Place::new();
    let (collector, spans) = collector();
    let run = place.run_script(SECRETIVE).arg("--otlp").arg(collector);
    let ended = run.prompts(&["prompt-7"]).end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let spans = spans_until(&spans, "invoke_agent allstop");
    let model = attribute(
        named(&spans, "invoke_agent allstop"),
        "gen_ai.request.model",
    );
    let chat = format!("chat {model}");
    let paths: Vec<String> = spans.iter().map(|span| path(&spans, span)).collect();
    let turn = "invoke_agent allstop";
    let expected = [
        format!("{turn} > step > {chat}"),
        format!("{turn} > step > execute_tool shell"),
        format!("{turn} > step"),
        format!("{turn} > step > {chat}"),
        format!("{turn} > step"),
        turn.to_owned(),
    ];
    assert_eq!(paths, expected);
    for (name, key, value) in [
        (turn, "gen_ai.operation.name", "invoke_agent"),
        (turn, "gen_ai.agent.name", "allstop"),
        (turn, "gen_ai.provider.name", "script"),
        (turn, "allstop.stop_reason", "completed"),
        (turn, "allstop.steps", "2"),
        (turn, "allstop.stop.cause", ""),
        (&*chat, "gen_ai.operation.name", "chat"),
        (&*chat, "gen_ai.response.finish_reasons", "[tool_calls]"),
        (
            "execute_tool shell",
            "gen_ai.operation.name",
            "execute_tool",
        ),
        ("execute_tool shell", "gen_ai.tool.name", "shell"),
        ("execute_tool shell", "gen_ai.tool.call.id", "call_1_1"),
        ("execute_tool shell", "error.type", ""),
    ] {
        assert_eq!(attribute(named(&spans, name), key), value, "{name} {key}");
    }
    let turn = named(&spans, turn);
    assert_eq!(
        attribute(turn, "gen_ai.conversation.id"),
        place.only_session()
    );
    for tokens in ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"] {
        let count: u64 = attribute(turn, tokens).parse().expect("a number");
        assert!(count > 0, "{tokens}");
    }
    let all = format!("{spans:?}");
    for text in ["prompt-7", "Answer-7", "result-7", "Done-7"] {
        assert!(!all.contains(text), "{text} in {all}");
    }
}

#[test]
fn chat_traces_its_hooks_and_guardrails_and_names_its_service() {
    let place = Place::new();
    let (collector, spans) = collector();
    let config = "[[hooks]]\non = \"turn_start\"\ncommand = \"true # hook-1\"\n\
                  [[guardrails]]\non = \"input\"\ncommand = \"exit 2 # guardrail-1\"\n";
    let config = place.file("allstop.toml", config);
    let chat = place.allstop().args("chat --yes hello --store");
    let chat = chat.arg(place.store()).arg("--config").arg(config);
    let chat = chat.arg("--model").arg(place.script(SECRETIVE));
    let chat = chat.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector);
    let chat = chat.env(
        "OTEL_RESOURCE_ATTRIBUTES",
        "deployment.environment.name=test",
    );
    let ended = chat.env("OTEL_SERVICE_NAME", "reviewer").end();
    assert!(ended.stderr.contains("guardrail"), "{ended:#?}");

    let turn = "invoke_agent allstop";
    let spans = spans_until(&spans, turn);
    let begins = |with: &str| {
        let found = spans.iter().find(|span| span.name.starts_with(with));
        found.unwrap_or_else(|| panic!("no span {with:?} in {spans:#?}"))
    };
    let (hook, guardrail) = (begins("hook "), begins("guardrail "));
    for (span, key, value) in [
        (hook, "allstop.hook.event", "turn_start"),
        (hook, "allstop.verdict", "continue"),
        (guardrail, "allstop.guardrail.stage", "input"),
        (guardrail, "allstop.verdict", "refuse"),
        (begins(turn), "allstop.stop_reason", "guardrail"),
        (begins(turn), "service.name", "reviewer"),
        (begins(turn), "deployment.environment.name", "test"),
    ] {
        assert_eq!(attribute(span, key), value, "{key}: {span:#?}");
    }
    for span in [hook, guardrail] {
        assert_eq!(path(&spans, span), format!("{turn} > {}", span.name));
    }
}

#[test]
fn stopped_run_has_its_receipt_in_the_trace() {
    let place = Place::new();
    let (collector, spans) = collector();
    let run = place.run_script(SCRIPT).arg("--otlp").arg(collector);
    let running = run.prompts(&["hello"]).start();
    let ready = place.work().join("ready");
    eventually("the call", || ready.exists().then_some(()));
    let ended = running.end_by(Signal::INT);
    assert_eq!(ended.code, 130, "{}", ended.stderr);
    let spans = spans_until(&spans, "invoke_agent allstop");
    let turn = named(&spans, "invoke_agent allstop");
    for (key, value) in [
        ("allstop.stop_reason", "cancelled"),
        ("allstop.stop.cause", "user"),
        ("allstop.stop.quiet", "true"),
        ("allstop.stop.items.still_running", ""),
        ("error.type", ""),
    ] {
        assert_eq!(attribute(turn, key), value, "{key}");
    }
    let stopped: u64 = attribute(turn, "allstop.stop.items.stopped")
        .parse()
        .expect("a number");
    assert!(stopped >= 1);
    let call = named(&spans, "execute_tool shell");
    assert_eq!(attribute(call, "allstop.stop.cause"), "user");
}

#[test]
fn collector_that_hangs_delays_a_run_by_half_a_second_and_is_reported_once() {
    let place = Place::new();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", silent.local_addr().expect("an address"));
    let run = place.run_script(SECRETIVE).arg("--otlp").arg(&address);
    let started = std::time::Instant::now();
    let ended = run.prompts(&["hello"]).end();
    assert!(started.elapsed() < std::time::Duration::from_secs(3));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let warning = format!("traces are incomplete: 6 spans were not sent to {address}");
    let lines = ended.stderr.lines();
    let warnings: Vec<&str> = lines.filter(|line| line.contains("traces")).collect();
    assert!(
        matches!(warnings.as_slice(), [one] if one.starts_with(&warning)),
        "{warnings:?}"
    );
    drop(silent);
}

#[test]
fn environment_of_the_specification_enables_and_disables_traces() {
    let place = Place::new();
    let (collector, spans) = collector();
    let run = || {
        let run = place.run_script("replies: [{text: Done.}]");
        run.prompts(&["hello"])
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector)
    };
    let ended = run().env("OTEL_SDK_DISABLED", "true").end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(spans.try_recv().is_err(), "the SDK is disabled");
    assert_eq!(run().end().code, 0);
    assert_eq!(spans_until(&spans, "invoke_agent allstop").len(), 3);
}

/// Tools of an MCP server that writes each call to a file, and answers it after the file `go` exists.
const WAITING_TOOL: &str = r#"[{"name":"wait","inputSchema":{"type":"object"}}]"#;
const ON_CALL: &str = r#"printf '%s\n' "$line" >"called-$$"
    while [ ! -e go ]; do sleep 0.02; done
    result='{"content":[{"type":"text","text":"went"}]}'"#;

/// Two workers run one task each at the same time. The caller knows only the front end.
#[test]
fn trace_of_the_caller_continues_at_each_worker() {
    let place = Place::new();
    let nats = NatsServer::start(place.path("nats"));
    let server = shell_server("", WAITING_TOOL, ON_CALL);
    let server = place.file("server.sh", server);
    let config = format!(
        "[mcp.servers.s]\ncommand = \"sh\"\nargs = [\"{}\"]\n",
        server.display()
    );
    let config = place.file("waits.toml", config);
    let model = place.script("replies: [{calls: [{tool: s__wait}]}, {text: Done.}]");
    let at_nats = |args: &str, collector: &str| {
        let command = place.allstop().args(args).arg("--store").arg(nats.url());
        command.arg("--otlp").arg(collector)
    };
    let (front_collector, front_spans) = collector();
    let running = at_nats("serve --listen 127.0.0.1:0", &front_collector).start();
    let address = running.line_of_stdout("listening on http://");
    let front = Server { running, address };
    let workers = [(), ()].map(|()| {
        let (collector, spans) = collector();
        let worker = at_nats("worker --concurrency 1 --yes", &collector);
        let worker = worker.arg("--config").arg(&config);
        let worker = worker.arg("--model").arg(&model).start();
        worker.wait_stdout("working, at most 1 task");
        (worker, spans)
    });
    let tasks = ["m1", "m2"].map(|id| send(&front, id));
    let calls = eventually("a call at each worker", || {
        let files = std::fs::read_dir(place.work()).ok()?.flatten();
        let calls = files.filter(|file| file.file_name().to_string_lossy().starts_with("called-"));
        let calls = calls.filter_map(|file| std::fs::read_to_string(file.path()).ok());
        let calls: Vec<String> = calls.filter(|call| call.ends_with('\n')).collect();
        (calls.len() == 2).then_some(calls)
    });
    for call in calls {
        let call: Value = serde_json::from_str(&call).expect("JSON");
        let meta = &call["params"]["_meta"];
        let traceparent = meta["traceparent"].as_str().expect("a context");
        assert!(traceparent.contains(&format!("{TRACE:032x}")), "{meta}");
        assert_eq!(
            (&meta["tracestate"], &meta["baggage"]),
            (&"vendor=a".into(), &"user=7".into())
        );
    }
    place.file("work/go", "");
    for task in &tasks {
        eventually("the task is completed", || {
            let task = front.get(&format!("/tasks/{task}"));
            (task["status"]["state"] == "TASK_STATE_COMPLETED").then_some(())
        });
    }
    for (worker, spans) in workers {
        assert_eq!(worker.end_by(Signal::TERM).code, 143);
        let spans = spans_until(&spans, "task execution");
        let execution = named(&spans, "task execution");
        assert_eq!(execution.parent_span_id, CALLER.to_be_bytes());
        let paths: Vec<String> = spans.iter().map(|span| path(&spans, span)).collect();
        for begin in ["", " > step > chat ", " > step > execute_tool s__wait"] {
            let begin = format!("task execution > invoke_agent allstop{begin}");
            assert!(
                paths.iter().any(|path| path.starts_with(&begin)),
                "{paths:?}"
            );
        }
        for span in &spans {
            assert_eq!(span.trace_id, TRACE.to_be_bytes(), "{}", span.name);
            assert_eq!(span.trace_state, "vendor=a", "{}", span.name);
        }
    }
    assert_eq!(front.running.end_by(Signal::TERM).code, 143);
    assert!(
        front_spans.try_recv().is_err(),
        "the front end runs no task"
    );
}
