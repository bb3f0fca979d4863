//! Tests of the JSON lines, with readers that read and readers that stop reading.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{CallId, FinishReason, SessionId, TurnNumber};
use allstop_terminal::{FlushResult, OutputStreams};

use super::*;

const LONG: Duration = Duration::from_secs(20);

fn stream() -> (File, OutputStreams, JsonStream) {
    let (reader, writer) = std::io::pipe().unwrap();
    let files: [OwnedFd; 2] = [reader.into(), writer.into()];
    let [reader, writer] = files.map(File::from);
    let null = File::options().write(true).open("/dev/null").unwrap();
    let output = OutputStreams::new(writer, null).unwrap();
    let mut stream = JsonStream::new(output.stdout().clone());
    stream.now = || Timestamp::from_unix_ms(1_000);
    (reader, output, stream)
}

fn delta(text: &str) -> AgentEvent {
    AgentEvent::TextDelta { text: text.into() }
}

fn envelope() -> Value {
    // The keys are in alphabetical order. So the result is the same for a map that sorts its keys and a map that keeps
    // their order.
    serde_json::json!({"output": "two\nlines", "schema": "allstop.run/1"})
}

#[test]
fn each_event_is_a_line_and_the_envelope_is_the_last() {
    let (reader, output, mut stream) = stream();
    stream.event(&AgentEvent::TurnStarted {
        session_id: SessionId::from("s"),
        turn: TurnNumber(1),
    });
    stream.event(&delta("a\nb\u{1b}"));
    stream.missed(2);
    stream.event(&delta("c"));
    stream.missed(1);
    stream.envelope(&envelope());
    assert_eq!(output.flush(LONG).stdout, FlushResult::Flushed);
    drop((output, stream));
    insta::assert_snapshot!(std::io::read_to_string(reader).unwrap());
}

#[test]
fn output_pending_at_a_stop_is_dropped_and_counted() {
    let (reader, output, mut stream) = stream();
    let tool_output = || AgentEvent::ToolOutput {
        call_id: CallId::from("c"),
        text: "y\n".into(),
        base64: None,
        missed_bytes: 0,
    };
    stream.event(&tool_output());
    stream.stopping();
    stream.event(&tool_output());
    stream.event(&delta("a"));
    stream.event(&AgentEvent::TurnStarted {
        session_id: SessionId::from("s"),
        turn: TurnNumber(1),
    });
    assert_eq!(output.flush(LONG).stdout, FlushResult::Flushed);
    drop((output, stream));
    let text = std::io::read_to_string(reader).unwrap();
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<_> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["tool_output", "events_missed", "turn_started"]);
    assert_eq!(events[1]["count"], 2);
}

#[test]
fn paused_reader_gets_the_number_of_missed_deltas() {
    let (reader, output, mut stream) = stream();
    let count = 10_000;
    for _ in 0..count {
        stream.event(&delta(&"x".repeat(100)));
    }
    let text = "the whole answer".into();
    let finish = FinishReason::Done;
    stream.event(&AgentEvent::StepAnswered {
        step: 1,
        text,
        finish,
        calls: Arc::default(),
    });
    stream.envelope(&envelope());
    assert_eq!(
        output.flush(Duration::from_millis(20)).stdout,
        FlushResult::Blocked
    );
    #[expect(clippy::disallowed_methods, reason = "a reader beside the test")]
    let reading = std::thread::spawn(|| std::io::read_to_string(reader).unwrap());
    assert_eq!(output.flush(LONG).stdout, FlushResult::Flushed);
    drop((output, stream));
    let lines: Vec<Value> = reading
        .join()
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |name: &str| lines.iter().filter(|line| line["event"] == name).count();
    let missed: u64 = lines.iter().filter_map(|line| line["count"].as_u64()).sum();
    assert!(missed > 0);
    assert_eq!(of("text_delta") as u64 + missed, count, "counted exactly");
    assert_eq!(of("step_answered"), 1);
    assert_eq!(lines.last(), Some(&envelope()));
}
