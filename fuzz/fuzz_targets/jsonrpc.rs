//! Any bytes as a stream of JSON-RPC frames: chunks of any size decode to the same bodies, none longer than the limit;
//! a message is refused with an answer, or written and read again without a change.
//!
//! The first byte of the input is the size of the chunks.
#![no_main]

use allstop_jsonrpc::{
    FrameDecoder, FrameError, FrameLimits, IncomingMessage, MalformedMessage, RpcError,
    encode_error_response, encode_frame, encode_notification, encode_request, encode_response,
};
use libfuzzer_sys::fuzz_target;

/// Small, so that inputs reach the limits.
const LIMITS: FrameLimits = FrameLimits {
    header_bytes_max: 128,
    body_bytes_max: 1024,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((chunk_len, stream)) = bytes.split_first() else {
        return;
    };
    let (bodies, error) = decode(stream.chunks(usize::from(*chunk_len).max(1)));
    assert_eq!(
        (bodies.clone(), error),
        decode([stream]),
        "the chunks count"
    );
    let again: Vec<u8> = bodies.iter().flat_map(|body| encode_frame(body)).collect();
    assert_eq!((bodies.clone(), None), decode([again.as_slice()]));
    for body in bodies {
        assert!(body.len() <= LIMITS.body_bytes_max);
        match IncomingMessage::parse(&body) {
            Ok(message) => check_message(&message),
            Err(malformed) => check_refusal(&malformed),
        }
    }
});

/// Bodies of all frames, and the error that ends the stream.
fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let mut decoder = FrameDecoder::new(LIMITS);
    let mut bodies = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        loop {
            match decoder.next_frame() {
                Ok(Some(body)) => bodies.push(body),
                Ok(None) => break,
                Err(error) => {
                    decoder.push(b"Content-Length: 0\r\n\r\n");
                    assert_eq!(decoder.next_frame(), Err(error.clone()));
                    return (bodies, Some(error));
                }
            }
        }
    }
    (bodies, None)
}

fn check_message(message: &IncomingMessage) {
    let written = match message {
        IncomingMessage::Request(request) => {
            encode_request(&request.id, &request.method, &request.params)
        }
        IncomingMessage::Notification { method, params } => encode_notification(method, params),
        IncomingMessage::Response {
            id,
            result: Err(error),
        } => Ok(encode_error_response(id.as_ref(), error)),
        IncomingMessage::Response {
            id,
            result: Ok(result),
        } => encode_response(id.as_ref().expect("a result has an id"), result),
    };
    let written = written.expect("what was read can be written");
    let again = IncomingMessage::parse(&written).expect("what was written can be read");
    // The text has every field, and raw JSON as it was written.
    assert_eq!(format!("{again:?}"), format!("{message:?}"));
}

fn check_refusal(malformed: &MalformedMessage) {
    let codes = [RpcError::PARSE_ERROR, RpcError::INVALID_REQUEST];
    assert!(codes.contains(&malformed.error.code));
    let answer = encode_error_response(malformed.id.as_ref(), &malformed.error);
    let read = IncomingMessage::parse(&answer).expect("the answer is a message");
    let IncomingMessage::Response {
        id,
        result: Err(error),
    } = read
    else {
        panic!("an error");
    };
    assert_eq!((id, error), (malformed.id.clone(), malformed.error.clone()));
}
