//! Any steps of the two sides of a JSON-RPC connection. The bytes between the sides may arrive in any pieces. Every
//! request must get exactly one answer: the answer to this request. The refusals and the limits must match a simple
//! model of the tables.
#![no_main]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use allstop_jsonrpc::{
    AnswerDelivery, BeginRequestError, FrameDecoder, FrameLimits, IncomingMessage, IncomingRequest,
    IncomingRequests, OutgoingRequests, PendingResponse, QueuedAnswer, Responder, RpcError,
    RpcFailure, RpcId, encode_error_response, encode_frame, encode_notification, encode_request,
    encode_response,
};
use arbitrary::Arbitrary;
use futures::FutureExt as _;
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

/// Maximum number of steps in one input. This is enough to fill the tables a few times, and few enough for a quick run.
const STEPS_MAX: usize = 256;
/// The sender may send more requests than the receiver accepts, so that some are refused.
const OUTGOING_MAX: usize = 5;
const INCOMING_MAX: usize = 3;
const LIMITS: FrameLimits = FrameLimits {
    header_bytes_max: 64,
    body_bytes_max: 1024,
};

/// Ids of requests that have no entry in the table of their sender. Some of these ids are equal to ids in the table.
const IDS: [&str; 7] = ["1", "2", "3", "1.0", "\"1\"", "\"\\u0031\"", "1e0"];

/// Bodies that are refused. The last three are responses.
const MALFORMED: [&str; 7] = [
    "{",
    "[]",
    r#"{"jsonrpc":"2.0","id":1}"#,
    r#"{"jsonrpc":"1.0","id":2,"method":"hold"}"#,
    r#"{"jsonrpc":"2.0","id":1,"result":1,"error":null}"#,
    r#"{"jsonrpc":"2.0","id":2,"id":2,"result":1}"#,
    r#"{"jsonrpc":"2.0","id":3,"error":"no"}"#,
];

const FORGED: &str = "\"forged\"";

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Step {
    Begin(Wish),
    /// A request that has no entry in the table of its sender.
    Stray {
        id: u8,
        wish: Wish,
    },
    Notify,
    /// An answer that has no request, or that comes before the real answer.
    Forge {
        id: u8,
        is_error: bool,
    },
    Malformed(u8),
    /// Bytes that arrive from the other side.
    Receive(u8),
    Answer {
        at: u8,
        wish: Wish,
    },
    WriteAnswer,
    Poll(u8),
    Withdraw(u8),
    Close,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Wish {
    Result,
    Error,
    Drop,
    Hold,
}

type AnswerQueue = Arc<Mutex<VecDeque<QueuedAnswer>>>;
type Outcome = Result<String, RpcFailure>;

struct Side {
    outgoing: OutgoingRequests,
    incoming: IncomingRequests,
    decoder: FrameDecoder,
    queue: AnswerQueue,
    held: Vec<(RpcId, Responder)>,
    waiting: Vec<(RpcId, PendingResponse)>,
    /// Bytes for the other side.
    sent: VecDeque<u8>,
    // Fields of the simple model:
    last_id: u64,
    is_closed: bool,
    pending: BTreeSet<String>,
    arrived: BTreeMap<String, Outcome>,
    in_flight: BTreeSet<String>,
    accepted: usize,
    written: usize,
}

fuzz_target!(|steps: Vec<(bool, Step)>| {
    let mut sides = [Side::new(), Side::new()];
    for (is_second, step) in steps.into_iter().take(STEPS_MAX) {
        let [first, second] = &mut sides;
        if is_second {
            second.apply(step, first);
        } else {
            first.apply(step, second);
        }
        sides.iter().for_each(Side::check);
    }
    for side in &mut sides {
        side.held.clear();
        while side.write_answer() {}
    }
    while sides.iter().any(|side| !side.sent.is_empty()) {
        let [first, second] = &mut sides;
        first.receive(usize::MAX, second);
        second.receive(usize::MAX, first);
        for side in &mut sides {
            side.held.clear();
            while side.write_answer() {}
        }
    }
    for side in sides {
        side.finish();
    }
});

impl Side {
    fn new() -> Self {
        let queue = AnswerQueue::default();
        let sink = Arc::clone(&queue);
        let sink = Arc::new(move |answer| sink.lock().expect("no panic").push_back(answer));
        Self {
            outgoing: OutgoingRequests::new(OUTGOING_MAX),
            incoming: IncomingRequests::new(INCOMING_MAX, sink),
            decoder: FrameDecoder::new(LIMITS),
            queue,
            held: Vec::new(),
            waiting: Vec::new(),
            sent: VecDeque::new(),
            last_id: 0,
            is_closed: false,
            pending: BTreeSet::new(),
            arrived: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            accepted: 0,
            written: 0,
        }
    }

    fn apply(&mut self, step: Step, other: &mut Self) {
        match step {
            Step::Begin(wish) => self.begin(wish),
            Step::Stray { id, wish } => self.send_request(&any_id(id), wish),
            Step::Notify => {
                let body = encode_notification("noted", &[1]).expect("parameters");
                self.send(&body);
            }
            Step::Forge { id, is_error } => {
                let id = any_id(id);
                let body = if is_error {
                    encode_error_response(Some(&id), &RpcError::new(1, FORGED))
                } else {
                    let result: &RawValue = serde_json::from_str(FORGED).expect("JSON");
                    encode_response(&id, &result).expect("a result")
                };
                self.send(&body);
            }
            Step::Malformed(at) => {
                let body = MALFORMED[usize::from(at) % MALFORMED.len()];
                self.send(body.as_bytes());
            }
            Step::Receive(len) => self.receive(usize::from(len), other),
            Step::Answer { at, wish } => {
                if !self.held.is_empty() {
                    let (id, responder) = self.held.remove(usize::from(at) % self.held.len());
                    self.respond(id, responder, wish);
                }
            }
            Step::WriteAnswer => {
                self.write_answer();
            }
            Step::Poll(at) => self.poll(usize::from(at)),
            Step::Withdraw(at) => {
                if !self.waiting.is_empty() {
                    let at = usize::from(at) % self.waiting.len();
                    let (id, answer) = self.waiting.swap_remove(at);
                    drop(answer);
                    self.pending.remove(id.as_json());
                    self.arrived.remove(id.as_json());
                }
            }
            Step::Close => {
                self.outgoing.close();
                self.is_closed = true;
                for id in std::mem::take(&mut self.pending) {
                    self.arrived.insert(id, Err(RpcFailure::Closed));
                }
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.outgoing.pending_len(), self.pending.len());
        assert_eq!(self.incoming.in_flight_len(), self.in_flight.len());
        let queued = self.queue.lock().expect("no panic").len();
        assert_eq!(self.in_flight.len(), self.held.len() + queued);
        assert_eq!(self.accepted, self.in_flight.len() + self.written);
        assert!(self.in_flight.len() <= INCOMING_MAX && self.pending.len() <= OUTGOING_MAX);
    }

    fn begin(&mut self, wish: Wish) {
        match self.outgoing.begin() {
            Ok((id, answer)) => {
                assert!(!self.is_closed && self.pending.len() < OUTGOING_MAX);
                self.last_id += 1;
                assert_eq!(id, RpcId::from(self.last_id));
                self.pending.insert(id.to_string());
                self.send_request(&id, wish);
                self.waiting.push((id, answer));
            }
            Err(BeginRequestError::Closed) => assert!(self.is_closed),
            Err(BeginRequestError::TooMany { pending_max }) => {
                assert_eq!(
                    (self.pending.len(), pending_max),
                    (OUTGOING_MAX, OUTGOING_MAX)
                );
            }
        }
    }

    fn send_request(&mut self, id: &RpcId, wish: Wish) {
        let body = encode_request(id, method_of(wish), &[id]).expect("parameters");
        self.send(&body);
    }

    fn send(&mut self, body: &[u8]) {
        self.sent.extend(encode_frame(body));
    }

    fn receive(&mut self, len: usize, other: &mut Self) {
        let len = len.min(other.sent.len());
        let bytes: Vec<u8> = other.sent.drain(..len).collect();
        self.decoder.push(&bytes);
        while let Some(body) = self.decoder.next_frame().expect("whole frames") {
            self.message(&body);
        }
    }

    fn message(&mut self, body: &[u8]) {
        match IncomingMessage::parse(body) {
            Ok(IncomingMessage::Request(request)) => self.request(request),
            Ok(IncomingMessage::Notification { method, params }) => {
                assert_eq!(method, "noted");
                assert_eq!(params.expect("parameters").get(), "[1]");
            }
            Ok(IncomingMessage::Response { id: None, result }) => {
                result.expect_err("no answer without an id has a result");
            }
            Ok(IncomingMessage::Response {
                id: Some(id),
                result,
            }) => {
                if let Ok(result) = &result {
                    let own = format!("[{id}]");
                    assert!([own.as_str(), FORGED].contains(&result.get()), "{result}");
                }
                self.complete(&id, result);
            }
            Err(malformed) if malformed.is_response => {
                if let Some(id) = malformed.id {
                    self.complete(&id, Err(malformed.error));
                }
            }
            Err(malformed) => {
                let answer = encode_error_response(malformed.id.as_ref(), &malformed.error);
                self.send(&answer);
            }
        }
    }

    fn request(&mut self, request: IncomingRequest) {
        let IncomingRequest { id, method, params } = request;
        assert_eq!(params.expect("parameters").get(), format!("[{id}]"));
        let is_duplicate = self.in_flight.contains(id.as_json());
        let is_full = self.in_flight.len() == INCOMING_MAX;
        match self.incoming.accept(id.clone()) {
            Ok(responder) => {
                assert!(!is_duplicate && !is_full);
                self.in_flight.insert(id.to_string());
                self.accepted += 1;
                self.respond(id, responder, wish_of(&method));
            }
            Err(refused) => {
                let code = if is_duplicate {
                    RpcError::INVALID_REQUEST
                } else {
                    assert!(is_full);
                    RpcError::OVERLOADED
                };
                assert_eq!(refused.code, code);
                let answer = encode_error_response(Some(&id), &refused);
                self.send(&answer);
            }
        }
    }

    fn respond(&mut self, id: RpcId, responder: Responder, wish: Wish) {
        match wish {
            Wish::Result => responder.respond(Ok([&id])),
            Wish::Error => responder.respond(Err::<(), _>(RpcError::new(2, "as told"))),
            Wish::Drop => drop(responder),
            Wish::Hold => self.held.push((id, responder)),
        }
    }

    /// Writes the next queued answer. Returns false if no answer is queued.
    fn write_answer(&mut self) -> bool {
        let answer = self.queue.lock().expect("no panic").pop_front();
        let Some(answer) = answer else {
            return false;
        };
        self.sent.extend(answer.frame());
        assert!(self.in_flight.remove(answer.id().as_json()));
        self.written += 1;
        true
    }

    fn complete(&mut self, id: &RpcId, result: Result<Box<RawValue>, RpcError>) {
        let outcome = match &result {
            Ok(result) => Ok(result.get().to_owned()),
            Err(error) => Err(RpcFailure::Rpc(error.clone())),
        };
        let was_pending = self.pending.remove(id.as_json());
        let delivery = self.outgoing.complete(id, result);
        assert_eq!(delivery == AnswerDelivery::Delivered, was_pending);
        if was_pending {
            self.arrived.insert(id.to_string(), outcome);
        }
    }

    fn poll(&mut self, at: usize) {
        if self.waiting.is_empty() {
            return;
        }
        let at = at % self.waiting.len();
        let (id, answer) = &mut self.waiting[at];
        let id = id.to_string();
        match answer.now_or_never() {
            None => assert!(self.pending.contains(&id)),
            Some(answer) => {
                let outcome = answer.map(|result| result.get().to_owned());
                assert_eq!(self.arrived.remove(&id), Some(outcome));
                drop(self.waiting.swap_remove(at));
            }
        }
    }

    /// Checks that every request that was sent has an outcome.
    fn finish(mut self) {
        self.check();
        assert!(self.decoder.is_at_boundary());
        assert_eq!(self.pending, BTreeSet::new(), "requests without an answer");
        assert_eq!(self.accepted, self.written);
        while !self.waiting.is_empty() {
            self.poll(0);
        }
        assert!(self.arrived.is_empty());
    }
}

fn any_id(number: u8) -> RpcId {
    serde_json::from_str(IDS[usize::from(number) % IDS.len()]).expect("an id")
}

fn method_of(wish: Wish) -> &'static str {
    match wish {
        Wish::Result => "result",
        Wish::Error => "error",
        Wish::Drop => "drop",
        Wish::Hold => "hold",
    }
}

fn wish_of(method: &str) -> Wish {
    match method {
        "result" => Wish::Result,
        "error" => Wish::Error,
        "drop" => Wish::Drop,
        _ => Wish::Hold,
    }
}
