//! Requests to the model after a stop at any point of a turn. In each request, each call has exactly one result. The
//! policy for stopped turns decides how much of the turn is kept.

use std::time::Duration;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::Value;

use crate::support::random::{self, Random};
use crate::support::{Allstop, FACT_MAX, Place, Running, Signal, eventually, history};

/// A point in a turn of two steps at which the test stops the turn.
struct Point {
    name: &'static str,
    /// Answers to the requests of the stopped turn. The last answer hangs.
    answers: fn() -> Vec<ServerAnswer>,
    /// Waits until the turn hangs.
    wait: fn(&Place, &OpenAiServer, &Running),
    /// Number of messages of the turn that the policy `keep` keeps, in addition to the user's message and the note
    /// about the stop.
    kept: usize,
    /// Beginning of the answer that the stop has cut, as the note about the stop quotes it; empty without such an
    /// answer.
    partial: &'static str,
}

/// Answer with two tool calls: the first ends immediately, and the second never ends.
fn asks() -> ServerAnswer {
    ServerAnswer::text("Let me see.")
        .tool_call("call_a", "shell", r#"{"command":"echo quick"}"#)
        .tool_call("call_b", "shell", r#"{"command":"touch ready; sleep 600"}"#)
}

fn asks_quickly() -> ServerAnswer {
    ServerAnswer::text("Let me see.")
        .tool_call("call_a", "shell", r#"{"command":"echo quick"}"#)
        .tool_call("call_b", "list", "{}")
}

/// Pause of the server between two parts of an answer.
const PIECE: Duration = Duration::from_millis(5);

/// Waits for `count` requests of this turn. The server has already received one request of the previous turn.
fn wait_requests(server: &OpenAiServer, count: usize) {
    let came = server.wait_until_blocking(FACT_MAX, |seen| seen.requests.len() > count);
    assert!(came.is_ok(), "{came:?}");
}

const POINTS: [Point; 8] = [
    Point {
        name: "before the first answer",
        answers: || vec![ServerAnswer::stream().stall_before_headers()],
        wait: |_, server, _| wait_requests(server, 1),
        kept: 0,
        partial: "",
    },
    Point {
        name: "in the middle of a text",
        answers: || vec![ServerAnswer::text("Half an").stall()],
        wait: |_, _, running| {
            running.wait_stdout("Half");
        },
        kept: 0,
        partial: "Half",
    },
    Point {
        name: "in the middle of a call",
        answers: || {
            let half = ServerAnswer::text("Half.").half_tool_call("call_a", "shell", "{\"comm");
            vec![half.stall()]
        },
        wait: |_, _, running| {
            running.wait_stdout("Half.");
        },
        kept: 0,
        partial: "Half.",
    },
    Point {
        name: "after a call, before the end of the answer",
        answers: || vec![asks().chunk("More").stall()],
        wait: |_, _, running| {
            running.wait_stdout("More");
        },
        kept: 0,
        partial: "Let me see.",
    },
    Point {
        name: "in two calls, one of which is over",
        answers: || vec![asks()],
        wait: |place, _, running| {
            // Wait for the end of the first call, and not for its output, because the output arrives earlier.
            running.wait_stdout("\"tool_finished\"");
            let ready = place.work().join("ready");
            eventually("the second call", || ready.exists().then_some(()));
        },
        kept: 3,
        partial: "",
    },
    Point {
        name: "before the second answer",
        answers: || {
            vec![
                asks_quickly(),
                ServerAnswer::stream().stall_before_headers(),
            ]
        },
        wait: |_, server, _| wait_requests(server, 2),
        kept: 3,
        partial: "",
    },
    Point {
        name: "in the middle of the second answer",
        answers: || vec![asks_quickly(), ServerAnswer::text("Half an").stall()],
        wait: |_, _, running| {
            running.wait_stdout("Half");
        },
        kept: 3,
        partial: "Half",
    },
    Point {
        name: "in the back-off before the second answer",
        answers: || {
            let busy = ServerAnswer::status(503).header("retry-after", "50");
            vec![asks_quickly(), busy]
        },
        wait: |_, _, running| {
            running.wait_stdout("retry_scheduled");
        },
        kept: 3,
        partial: "",
    },
];

fn run<'a>(place: &'a Place, server: &OpenAiServer) -> Allstop<'a> {
    let run = place.run().args("--stream-json --model any --base-url");
    run.arg(server.url())
}

/// Stops a turn at this point, and sends another prompt. Returns the messages of the next request to the model.
#[track_caller]
fn next_request_after(point: &Point, policy: &str) -> Vec<Value> {
    let place = Place::new();
    let mut answers = vec![ServerAnswer::text("Hello.")];
    answers.extend((point.answers)());
    let last = answers.len();
    let server = OpenAiServer::deciding(move |number, _| {
        let finally = || ServerAnswer::text("Fine.");
        answers.get(number).cloned().unwrap_or_else(finally)
    });
    let session = run(&place, &server).arg("first").end().ok().session();

    let stopped = run(&place, &server)
        .args("--grace 200ms --on-stop")
        .arg(policy);
    let stopped = stopped.arg("--session").arg(&session).arg("second").start();
    (point.wait)(&place, &server, &stopped);
    let stopped = stopped.end_by(Signal::INT);
    assert_eq!(stopped.code, 130, "{stopped:#?}");
    let lines = stopped.lines();
    let receipt = &lines[lines.len() - 1]["receipt"];
    let conversation = match policy {
        "keep" => "kept_completed_steps",
        _ => "unchanged",
    };
    assert_eq!(receipt["conversation"], conversation, "{receipt:#}");

    run(&place, &server)
        .arg("--session")
        .arg(&session)
        .arg("third")
        .end()
        .ok();
    let requests = server.requests();
    assert_eq!(requests.len(), last + 1);
    for request in &requests {
        history::assert_valid(request.messages());
    }
    requests[last].messages().to_vec()
}

/// Roles and texts of the messages.
fn outline(messages: &[Value]) -> Vec<(String, String)> {
    let of = |message: &Value| {
        let role = message["role"].as_str().expect("a role").to_owned();
        (role, history::text_of(message))
    };
    messages.iter().map(of).collect()
}

#[test]
fn rollback_policy_keeps_nothing_of_a_stopped_turn() {
    for point in &POINTS {
        println!("{}", point.name);
        let messages = next_request_after(point, "rollback");
        let outline = outline(&messages);
        let outline: Vec<(&str, &str)> = outline
            .iter()
            .map(|(role, text)| (&**role, history::without_note(text)))
            .collect();
        assert_eq!(
            outline,
            [
                ("user", "first"),
                ("assistant", "Hello."),
                ("user", "third")
            ],
            "{}",
            point.name
        );
    }
}

#[test]
fn keep_policy_keeps_completed_steps_with_results() {
    for point in &POINTS {
        println!("{}", point.name);
        let messages = next_request_after(point, "keep");
        let outline = outline(&messages);
        let about = format!("{}: {outline:#?}", point.name);
        // The request contains the previous turn, the kept part of this turn, and the user's messages before and after
        // this part. Consecutive user messages are sent as one message.
        let (said, kept): (Vec<_>, Vec<_>) =
            outline[2..].iter().partition(|(role, _)| role == "user");
        let said: Vec<&str> = said.iter().map(|(_, text)| &**text).collect();
        let said = said.join(
            "

",
        );
        let marker = "second\n\nThe turn was stopped here (user (ctrl-c)).";
        let begin = match point.partial {
            "" => format!("{marker}\n\n"),
            partial => format!("{marker} Your answer had begun with:\n{partial}"),
        };
        assert!(
            said.starts_with(&begin) && said.ends_with("\n\nthird"),
            "{about}"
        );
        if point.partial.is_empty() {
            assert_eq!(said, format!("{begin}third"), "{about}");
        }
        assert_eq!(kept.len(), point.kept, "{about}");
        if let [(role, text), results @ ..] = &*kept {
            assert_eq!((&**role, &**text), ("assistant", "Let me see."), "{about}");
            assert!(results.iter().all(|(role, _)| role == "tool"), "{about}");
            assert_eq!(results[0].1, "quick\n", "{about}");
        }
    }
}

/// One session is stopped repeatedly. The kept parts of the turns accumulate, and the conversation stays valid for a
/// model.
#[test]
fn a_stop_at_any_moment_leaves_a_conversation_that_can_be_sent() {
    const ROUNDS: usize = 10;
    let seed = random::seed();
    println!("ALLSTOP_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    for policy in ["keep", "rollback"] {
        let place = Place::new();
        let server = OpenAiServer::deciding(|_, request| {
            let messages = request.messages();
            let is_new = messages.last().is_some_and(|last| last["role"] == "user");
            if is_new {
                asks_quickly()
            } else {
                ServerAnswer::text("Done with it.")
            }
            .every(PIECE)
        });
        let first = run(&place, &server).arg("first").end().ok();
        let session = first.session();
        for round in 0..ROUNDS {
            let moment = random.before(first.after * 5 / 4);
            let stopped = run(&place, &server).args("--on-stop").arg(policy);
            let stopped = stopped
                .arg("--session")
                .arg(&session)
                .arg(format!("round {round}"));
            let mut running = stopped.start();
            if !running.ends_within(moment) {
                running.signal(Signal::INT);
            }
            let ended = running.end(FACT_MAX);
            assert!([0, 130].contains(&ended.code), "round {round}: {ended:#?}");
            place.assert_nothing_runs();
        }
        let last = run(&place, &server)
            .arg("--session")
            .arg(&session)
            .arg("last")
            .end();
        assert_eq!(last.code, 0, "{last:#?}");
        for request in server.requests() {
            history::assert_valid(request.messages());
        }
    }
}
