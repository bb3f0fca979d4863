//! A model provider that sends data without end. The memory of the process stays bounded, and the run ends with an
//! error that names the problem. A stop is as fast as usual.

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::json;

use crate::support::{Allstop, Place};

fn run<'a>(place: &'a Place, server: &OpenAiServer) -> Allstop<'a> {
    let run = place.run().args("--json --model any --base-url");
    run.arg(server.url()).arg("go")
}

fn event(delta: &serde_json::Value) -> String {
    let data = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    format!("data: {data}\n\n")
}

mod alone {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::support::processes::{cpu_time, memory_kb};
    use crate::support::{FACT_MAX, Signal, eventually};

    /// Maximum memory that the data of a provider may use, in addition to the memory of an idle process.
    const ABOVE_IDLE_KB_MAX: u64 = 100 * 1024;

    /// Interval between two memory measurements.
    const LOOK: Duration = Duration::from_millis(5);

    /// Processor time after which the process must have received much of the endless data.
    const BUSY: Duration = Duration::from_millis(300);

    fn peak_kb_and_error(answer: ServerAnswer) -> (u64, String, Duration) {
        let place = Place::new();
        let server = OpenAiServer::start([answer]);
        let running = run(&place, &server).start();
        let begin = Instant::now();
        let mut peak = 0;
        while !running.ends_within(LOOK) {
            peak = peak.max(memory_kb(running.pid(), "VmHWM").unwrap_or_default());
            assert!(begin.elapsed() < FACT_MAX, "it goes on, with {peak} kB");
        }
        let after = begin.elapsed();
        let envelope = running.end(FACT_MAX).envelope();
        place.assert_nothing_runs();
        let message = envelope["error"]["message"].as_str().unwrap_or_default();
        (peak, message.to_owned(), after)
    }

    #[test]
    fn provider_without_end_costs_bounded_memory() {
        let (idle, none, _) = peak_kb_and_error(ServerAnswer::text("hello"));
        assert_eq!(none, "");
        let words = "word ".repeat(50);
        let text = event(&json!({"content": words}));
        let reasoning = event(&json!({"reasoning_content": words}));
        let call = ServerAnswer::text("x").half_tool_call("a", "write", "{\"content\":\"");
        let arguments =
            event(&json!({"tool_calls": [{"index": 0, "function": {"arguments": words}}]}));
        let call_of = |id| {
            let function = json!({"name": "n", "arguments": "{}"});
            event(&json!({"tool_calls": [{"index": 0, "id": id, "function": function}]}))
        };
        let calls = call_of("a") + &call_of("b");
        let heavy = |text: &str| format!("[{}0]", text.repeat(2_000_000 / text.len()));
        let call_with =
            |arguments: &str| ServerAnswer::text("x").tool_call("a", "write", arguments);
        let letters = json!({"path": "x", "content": "x".repeat(2_000_000)});
        let event_of = |text: &str| {
            ServerAnswer::stream()
                .event(&heavy(text))
                .end_without_marker()
        };
        let page =
            |status, bytes: usize| ServerAnswer::page(status, "text/plain", "x".repeat(bytes));
        for (name, answer, said) in [
            (
                "text",
                ServerAnswer::stream().forever(text),
                "2 MiB in the answer",
            ),
            (
                "reasoning",
                ServerAnswer::stream().forever(reasoning),
                "2 MiB in the answer",
            ),
            ("arguments", call.forever(arguments), "2 MiB in the answer"),
            (
                "calls",
                ServerAnswer::stream().forever(calls),
                "256 tool calls",
            ),
            (
                "line",
                ServerAnswer::stream().raw("data: ").forever("x"),
                "16 MiB in one event",
            ),
            (
                "lines of one event",
                ServerAnswer::stream().forever("data: xxxxxxxx\n"),
                "16 MiB in one event",
            ),
            (
                "line without data",
                ServerAnswer::stream().forever("x"),
                "16 MiB in one event",
            ),
            ("long argument", call_with(&letters.to_string()), ""),
            (
                "long text",
                ServerAnswer::stream().chunk(&"word ".repeat(400_000)),
                "",
            ),
            (
                "numbers as arguments",
                call_with(&heavy("0,")),
                "too many JSON values",
            ),
            (
                "objects as arguments",
                call_with(&heavy("{\"\":0},")),
                "too many JSON values",
            ),
            (
                "event of objects",
                event_of("{\"\":0},"),
                "too many JSON values",
            ),
            (
                "error body",
                ServerAnswer::stream().with_status(400).forever("no way "),
                "400 Bad Request: no way",
            ),
            (
                "large error body",
                page(400, 300_000_000),
                "400 Bad Request: xxx",
            ),
        ] {
            let (peak, message, after) = peak_kb_and_error(answer);
            let above = peak.saturating_sub(idle);
            println!("{name}: {above} kB above idle, ended after {after:?}: {message:.120}");
            assert!(above < ABOVE_IDLE_KB_MAX, "{name}: {above} kB");
            assert!(message.contains(said), "{name}: {message}");
        }
    }

    #[test]
    fn stop_under_a_flood_that_means_nothing_is_quick() {
        for (name, flood) in [
            ("comments", ": x\n".to_owned()),
            ("empty lines", "\n".to_owned()),
            ("empty events", "data: {}\n\n".to_owned()),
            ("empty deltas", event(&json!({"content": ""}))),
        ] {
            let place = Place::new();
            let server = OpenAiServer::start([ServerAnswer::stream().forever(flood)]);
            let running = run(&place, &server).start();
            eventually("the flood is read", || {
                (cpu_time(running.pid())? > BUSY).then_some(())
            });
            let peak = memory_kb(running.pid(), "VmHWM").expect("it runs");
            let ended = running.end_by(Signal::INT);
            println!(
                "{name}: peak {peak} kB, ended after {:?}",
                ended.since_signal()
            );
            place.assert_nothing_runs();
            assert_eq!(ended.code, 130, "{name}: {ended:#?}");
            assert_eq!(ended.envelope()["receipt"]["quiet"], true, "{name}");
            let limit = Duration::from_millis(500);
            assert!(ended.since_signal() < limit, "{name}: {ended:#?}");
        }
    }
}
