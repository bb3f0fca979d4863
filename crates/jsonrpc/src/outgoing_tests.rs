use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread;

use proptest::prelude::*;
use serde_json::value::to_raw_value;

use super::*;

fn poll(answer: &mut PendingResponse) -> Poll<Result<String, RpcFailure>> {
    let mut cx = Context::from_waker(Waker::noop());
    Pin::new(answer)
        .poll(&mut cx)
        .map(|result| result.map(|value| value.get().to_owned()))
}

fn value(number: u64) -> Box<RawValue> {
    to_raw_value(&number).expect("JSON")
}

#[test]
fn answer_reaches_its_request_once() {
    let requests = OutgoingRequests::new(2);
    let (first_id, mut first) = requests.begin().expect("a place");
    let (second_id, mut second) = requests.begin().expect("a place");
    assert_eq!((first_id.as_json(), second_id.as_json()), ("1", "2"));
    assert_eq!(poll(&mut second), Poll::Pending);
    assert_eq!(
        requests.complete(&second_id, Ok(value(7))),
        AnswerDelivery::Delivered
    );
    assert_eq!(
        requests.complete(&second_id, Ok(value(8))),
        AnswerDelivery::Unknown
    );
    assert_eq!(poll(&mut second), Poll::Ready(Ok("7".to_owned())));
    assert_eq!(poll(&mut first), Poll::Pending);
    let error = RpcError::method_not_found("m");
    assert_eq!(
        requests.complete(&first_id, Err(error.clone())),
        AnswerDelivery::Delivered
    );
    assert_eq!(poll(&mut first), Poll::Ready(Err(RpcFailure::Rpc(error))));
    assert_eq!(requests.pending_len(), 0);
}

#[test]
fn answer_to_nothing_is_unknown() {
    let requests = OutgoingRequests::new(2);
    let (id, answer) = requests.begin().expect("a place");
    for text in ["0", "2", "1.0", "\"1\"", "-1"] {
        let other: RpcId = serde_json::from_str(text).expect("an id");
        assert_eq!(
            requests.complete(&other, Ok(value(1))),
            AnswerDelivery::Unknown
        );
    }
    drop(answer);
    assert_eq!(requests.pending_len(), 0);
    assert_eq!(
        requests.complete(&id, Ok(value(1))),
        AnswerDelivery::Unknown
    );
    let (next, _answer) = requests.begin().expect("a place");
    assert_eq!(next.as_json(), "2");
}

#[test]
fn close_ends_all_and_refuses_new_requests() {
    let requests = OutgoingRequests::new(2);
    let (id, mut first) = requests.begin().expect("a place");
    let (_, mut second) = requests.begin().expect("a place");
    assert_eq!(
        requests.complete(&id, Ok(value(1))),
        AnswerDelivery::Delivered
    );
    requests.clone().close();
    requests.close();
    assert_eq!(poll(&mut first), Poll::Ready(Ok("1".to_owned())));
    assert_eq!(poll(&mut second), Poll::Ready(Err(RpcFailure::Closed)));
    assert_eq!(requests.begin().err(), Some(BeginRequestError::Closed));
    assert_eq!(requests.pending_len(), 0);
}

#[test]
fn last_handle_closes() {
    let requests = OutgoingRequests::new(1);
    let (_, mut answer) = requests.begin().expect("a place");
    drop(requests.clone());
    assert_eq!(poll(&mut answer), Poll::Pending);
    drop(requests);
    assert_eq!(poll(&mut answer), Poll::Ready(Err(RpcFailure::Closed)));
}

struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn answer_and_close_wake_the_waiter() {
    let requests = OutgoingRequests::new(2);
    let counter = Arc::new(WakeCounter(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&counter));
    let (id, mut first) = requests.begin().expect("a place");
    let (_, mut second) = requests.begin().expect("a place");
    for answer in [&mut first, &mut second] {
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(answer).poll(&mut cx).is_pending());
    }
    assert_eq!(
        requests.complete(&id, Ok(value(1))),
        AnswerDelivery::Delivered
    );
    assert_eq!(counter.0.load(Ordering::SeqCst), 1);
    requests.close();
    assert_eq!(counter.0.load(Ordering::SeqCst), 2);
}

#[test]
fn requests_beyond_the_limit_are_refused() {
    const PENDING_MAX: usize = 1000;
    let requests = OutgoingRequests::new(PENDING_MAX);
    let mut answers = Vec::new();
    for sent in 0..100_000 {
        match requests.begin() {
            Ok((_, answer)) => answers.push(answer),
            Err(error) => {
                assert!(sent >= PENDING_MAX);
                let pending_max = PENDING_MAX;
                assert_eq!(error, BeginRequestError::TooMany { pending_max });
            }
        }
    }
    assert_eq!(answers.len(), PENDING_MAX);
    assert!(requests.table.lock().waiting.capacity() < 4 * PENDING_MAX);
    answers.pop();
    let (id, _answer) = requests.begin().expect("the free place");
    assert_eq!(id, RpcId::from(PENDING_MAX as u64 + 1));
}

#[test]
fn answer_races_with_withdrawal_and_close() {
    for round in 0..2000 {
        let requests = OutgoingRequests::new(4);
        let (id, mut answer) = requests.begin().expect("a place");
        let (_, withdrawn) = requests.begin().expect("a place");
        let delivered = thread::scope(|threads| {
            let completing = threads.spawn(|| {
                let once = requests.complete(&id, Ok(value(1)));
                let again = requests.complete(&id, Ok(value(2)));
                assert_eq!(again, AnswerDelivery::Unknown);
                once == AnswerDelivery::Delivered
            });
            threads.spawn(|| requests.close());
            threads.spawn(move || drop(withdrawn));
            completing.join().expect("no panic")
        });
        let expected = if delivered {
            Ok("1".to_owned())
        } else {
            Err(RpcFailure::Closed)
        };
        assert_eq!(poll(&mut answer), Poll::Ready(expected), "round {round}");
        assert_eq!(requests.pending_len(), 0);
    }
}

#[derive(Debug, Clone, Copy)]
enum OutgoingStep {
    Begin,
    Complete(u64),
    Poll(u64),
    Withdraw(u64),
    Close,
}

fn any_step() -> impl Strategy<Value = OutgoingStep> {
    prop_oneof![
        4 => Just(OutgoingStep::Begin),
        4 => (0..12_u64).prop_map(OutgoingStep::Complete),
        3 => (0..12_u64).prop_map(OutgoingStep::Poll),
        3 => (0..12_u64).prop_map(OutgoingStep::Withdraw),
        1 => Just(OutgoingStep::Close),
    ]
}

proptest! {
    #[test]
    fn any_interleaving_answers_at_most_once(
        steps in prop::collection::vec(any_step(), 0..60),
    ) {
        const PENDING_MAX: usize = 3;
        let requests = OutgoingRequests::new(PENDING_MAX);
        let mut answers: HashMap<u64, PendingResponse> = HashMap::new();
        // Model of the table: requests without an answer, and answers that were not fetched.
        let mut pending: Vec<u64> = Vec::new();
        let mut arrived: HashMap<u64, Result<String, RpcFailure>> = HashMap::new();
        let (mut last_id, mut is_closed) = (0, false);
        for (number, step) in (0_u64..).zip(steps) {
            match step {
                OutgoingStep::Begin => match requests.begin() {
                    Ok((id, answer)) => {
                        prop_assert!(!is_closed && pending.len() < PENDING_MAX);
                        last_id += 1;
                        prop_assert_eq!(id, RpcId::from(last_id));
                        pending.push(last_id);
                        answers.insert(last_id, answer);
                    }
                    Err(BeginRequestError::Closed) => prop_assert!(is_closed),
                    Err(BeginRequestError::TooMany { .. }) => {
                        prop_assert_eq!(pending.len(), PENDING_MAX);
                    }
                },
                OutgoingStep::Complete(id) => {
                    let delivery = requests.complete(&RpcId::from(id), Ok(value(number)));
                    let was_pending = pending.contains(&id);
                    prop_assert_eq!(delivery == AnswerDelivery::Delivered, was_pending);
                    if was_pending {
                        pending.retain(|other| *other != id);
                        arrived.insert(id, Ok(number.to_string()));
                    }
                }
                OutgoingStep::Poll(id) => {
                    if let Some(mut answer) = answers.remove(&id) {
                        match poll(&mut answer) {
                            Poll::Pending => {
                                prop_assert!(pending.contains(&id));
                                answers.insert(id, answer);
                            }
                            Poll::Ready(read) => prop_assert_eq!(Some(read), arrived.remove(&id)),
                        }
                    }
                }
                OutgoingStep::Withdraw(id) => {
                    answers.remove(&id);
                    arrived.remove(&id);
                    pending.retain(|other| *other != id);
                }
                OutgoingStep::Close => {
                    requests.close();
                    is_closed = true;
                    let closed = |id| (id, Err(RpcFailure::Closed));
                    arrived.extend(pending.drain(..).map(closed));
                }
            }
            prop_assert_eq!(requests.pending_len(), pending.len());
        }
        answers.clear();
        prop_assert_eq!(requests.pending_len(), 0);
    }
}
