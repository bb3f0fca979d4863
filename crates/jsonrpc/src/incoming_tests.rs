use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use proptest::prelude::*;
use serde::Serializer;
use serde_json::{Value, json};

use super::*;

type AnswerQueue = Arc<Mutex<Vec<QueuedAnswer>>>;

fn table(pending_max: usize) -> (IncomingRequests, AnswerQueue) {
    let queue = AnswerQueue::default();
    let sink = Arc::clone(&queue);
    let sink: AnswerSink = Arc::new(move |answer| sink.lock().push(answer));
    (IncomingRequests::new(pending_max, sink), queue)
}

fn id(text: &str) -> RpcId {
    serde_json::from_str(text).expect("an id")
}

/// Writes all queued answers, and returns their bodies.
fn write_all(queue: &AnswerQueue) -> Vec<Value> {
    let answers: Vec<QueuedAnswer> = queue.lock().drain(..).collect();
    let body = |answer: &QueuedAnswer| {
        let frame = String::from_utf8(answer.frame().to_vec()).expect("UTF-8");
        let (header, body) = frame.split_once("\r\n\r\n").expect("a header");
        assert_eq!(header, format!("Content-Length: {}", body.len()));
        serde_json::from_str(body).expect("JSON")
    };
    answers.iter().map(body).collect()
}

fn error_body(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

#[test]
fn answer_repeats_the_id_verbatim() {
    let (requests, queue) = table(10);
    for text in ["1.0", "123456789012345678901234567890", "\"\\u0061\""] {
        requests.accept(id(text)).expect("a place").respond(Ok(()));
        let answer = queue.lock().pop().expect("an answer");
        let body = format!(r#"{{"jsonrpc":"2.0","id":{text},"result":null}}"#);
        assert_eq!(answer.frame(), encode_frame(body.as_bytes()));
        assert_eq!(answer.id().as_json(), text);
    }
    let error = RpcError::invalid_params("no");
    let responder = requests.accept(id("2")).expect("a place");
    responder.respond(Err::<(), _>(error));
    assert_eq!(write_all(&queue), [error_body(&json!(2), -32602, "no")]);
}

#[test]
fn dropped_responder_answers() {
    let (requests, queue) = table(1);
    drop(requests.accept(id("7")).expect("a place"));
    let message = "the request was dropped without an answer";
    assert_eq!(write_all(&queue), [error_body(&json!(7), -32603, message)]);
    assert_eq!(requests.in_flight_len(), 0);
}

#[test]
fn permit_is_free_only_after_the_write() {
    let (requests, queue) = table(2);
    requests.accept(id("1")).expect("a place").respond(Ok(1));
    let _held = requests.accept(id("2")).expect("a place");
    let message = "too many requests in flight: the limit is 2";
    let refused = requests.accept(id("3")).expect_err("no place");
    assert_eq!(refused, RpcError::new(-32000, message));
    let duplicate = requests.accept(id("1")).expect_err("still queued");
    let message = "a request with this id is in flight";
    assert_eq!(duplicate, RpcError::new(-32600, message));
    assert_eq!(write_all(&queue).len(), 1);
    let again = requests.accept(id("1")).expect("a free id");
    again.respond(Ok(1));
}

#[test]
fn refusal_changes_nothing() {
    let (requests, queue) = table(1);
    let first = requests.accept(id("1")).expect("a place");
    requests.accept(id("1")).expect_err("a duplicate");
    requests.accept(id("2")).expect_err("no place");
    assert!(queue.lock().is_empty());
    assert_eq!(requests.in_flight_len(), 1);
    first.respond(Ok("done"));
    let expected = json!({"jsonrpc": "2.0", "id": 1, "result": "done"});
    assert_eq!(write_all(&queue), [expected]);
}

/// Ways in which a result can fail to be written.
enum BadResult {
    Error,
    Panic,
}

impl Serialize for BadResult {
    #[expect(clippy::panic_in_result_fn, reason = "the panic under test")]
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Error => Err(serde::ser::Error::custom("no")),
            Self::Panic => panic!("a bug of the caller"),
        }
    }
}

#[test]
fn result_that_cannot_be_written_is_an_internal_error() {
    let (requests, queue) = table(1);
    let responder = requests.accept(id("1")).expect("a place");
    responder.respond(Ok(BadResult::Error));
    let message = "the result cannot be written as JSON";
    assert_eq!(write_all(&queue), [error_body(&json!(1), -32603, message)]);
}

#[test]
fn panic_while_answering_still_answers_once() {
    let (requests, queue) = table(1);
    let responder = requests.accept(id("1")).expect("a place");
    let answering = AssertUnwindSafe(|| responder.respond(Ok(BadResult::Panic)));
    catch_unwind(answering).expect_err("the panic");
    let message = "the request was dropped without an answer";
    assert_eq!(write_all(&queue), [error_body(&json!(1), -32603, message)]);
}

#[test]
fn queue_that_owns_answers_is_no_reference_cycle() {
    let (requests, queue) = table(1);
    requests.accept(id("1")).expect("a place").respond(Ok(1));
    let queue_alive = Arc::downgrade(&queue);
    drop((requests, queue));
    assert!(queue_alive.upgrade().is_none());
}

#[test]
fn flood_of_requests_is_bounded() {
    const PENDING_MAX: usize = 1000;
    let (requests, queue) = table(PENDING_MAX);
    let mut refused = 0;
    for number in 0..100_000 {
        match requests.accept(RpcId::from(number)) {
            Ok(responder) => responder.respond(Ok(number)),
            Err(error) => {
                assert_eq!(error.code, RpcError::OVERLOADED);
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 100_000 - PENDING_MAX);
    assert_eq!(queue.lock().len(), PENDING_MAX);
    assert!(requests.slots.occupied.lock().capacity() < 4 * PENDING_MAX);
    assert_eq!(write_all(&queue).len(), PENDING_MAX);
    assert_eq!(requests.in_flight_len(), 0);
}

#[test]
fn threads_share_the_limit() {
    let (requests, queue) = table(8);
    let accepted: usize = thread::scope(|threads| {
        let accept = |first: u64| {
            let requests = &requests;
            let numbers = first..first + 500;
            threads.spawn(move || {
                let accepted = numbers.filter_map(|n| requests.accept(RpcId::from(n)).ok());
                accepted.map(|responder| responder.respond(Ok(1))).count()
            })
        };
        let threads: Vec<_> = (0..4).map(|at| accept(at * 1000)).collect();
        let joined = threads.into_iter().map(|t| t.join().expect("no panic"));
        joined.sum()
    });
    assert_eq!(accepted, 8);
    assert_eq!(write_all(&queue).len(), 8);
}

#[derive(Debug, Clone, Copy)]
enum IncomingStep {
    Accept(u64),
    Respond(u64),
    DropResponder(u64),
    WriteOne,
}

fn any_step() -> impl Strategy<Value = IncomingStep> {
    prop_oneof![
        4 => (0..6_u64).prop_map(IncomingStep::Accept),
        2 => (0..6_u64).prop_map(IncomingStep::Respond),
        1 => (0..6_u64).prop_map(IncomingStep::DropResponder),
        2 => Just(IncomingStep::WriteOne),
    ]
}

proptest! {
    #[test]
    fn each_accepted_request_is_answered_once(
        steps in prop::collection::vec(any_step(), 0..60),
    ) {
        const PENDING_MAX: usize = 3;
        let (requests, queue) = table(PENDING_MAX);
        let mut responders: Vec<(u64, Responder)> = Vec::new();
        let (mut accepted, mut written) = (0, 0);
        for step in steps {
            let is_queued = |id| queue.lock().iter().any(|answer| *answer.id() == RpcId::from(id));
            match step {
                IncomingStep::Accept(id) => {
                    let is_duplicate = is_queued(id) || responders.iter().any(|(other, _)| *other == id);
                    let is_full = queue.lock().len() + responders.len() == PENDING_MAX;
                    match requests.accept(RpcId::from(id)) {
                        Ok(responder) => {
                            prop_assert!(!is_duplicate && !is_full);
                            responders.push((id, responder));
                            accepted += 1;
                        }
                        Err(error) if error.code == RpcError::INVALID_REQUEST => prop_assert!(is_duplicate),
                        Err(_) => prop_assert!(is_full && !is_duplicate),
                    }
                }
                IncomingStep::Respond(id) | IncomingStep::DropResponder(id) => {
                    let Some(at) = responders.iter().position(|(other, _)| *other == id) else {
                        continue;
                    };
                    let (_, responder) = responders.remove(at);
                    if matches!(step, IncomingStep::Respond(_)) {
                        responder.respond(Ok(id));
                    } else {
                        drop(responder);
                    }
                    prop_assert!(is_queued(id));
                }
                IncomingStep::WriteOne => written += usize::from(queue.lock().pop().is_some()),
            }
            prop_assert_eq!(requests.in_flight_len(), queue.lock().len() + responders.len());
        }
        drop(responders);
        written += write_all(&queue).len();
        prop_assert_eq!(written, accepted);
        prop_assert_eq!(requests.in_flight_len(), 0);
    }
}
