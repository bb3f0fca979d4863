//! Any bytes as a stream of JSON-RPC frames. The decoder must return the same bodies as a simple decoder, whatever the
//! sizes of the chunks are. No body is longer than the limit. A parsed message has the values of its fields, and
//! writing it again changes nothing. A message that cannot be parsed is refused with an answer.
//!
//! The first four bytes of the input are the sizes of chunks, which repeat. The next byte selects the limits. The
//! stream follows.
#![no_main]

use std::collections::BTreeMap;

use allstop_jsonrpc::{
    FrameDecoder, FrameError, FrameLimits, IncomingMessage, MalformedMessage, RpcError,
    encode_error_response, encode_frame, encode_notification, encode_request, encode_response,
};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

/// The limits are small, so that short inputs can exceed them.
const LIMITS: [FrameLimits; 4] = [
    limits(128, 1024),
    limits(32, 4096),
    limits(22, 64),
    limits(0, 0),
];

/// Smallest size byte of a chunk that is combined with the next chunk. The length of such a chunk is the size byte
/// minus this number.
const LAZY: u8 = 128;

/// Fields of a message. If a field is repeated, its last value counts.
type Fields = BTreeMap<String, Box<RawValue>>;

const fn limits(header_bytes_max: usize, body_bytes_max: usize) -> FrameLimits {
    FrameLimits {
        header_bytes_max,
        body_bytes_max,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((sizes, rest)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let Some((number, stream)) = rest.split_first() else {
        return;
    };
    let limits = LIMITS[usize::from(*number) % LIMITS.len()];
    let expected = decode_simply(stream, limits);
    assert_eq!(decode(stream, &[], limits), expected, "one chunk");
    assert_eq!(decode(stream, sizes, limits), expected, "chunks");
    assert_eq!(decode(stream, &[1], limits), expected, "bytes");

    let (bodies, _) = expected;
    if limits == LIMITS[0] {
        let again: Vec<u8> = bodies.iter().flat_map(|body| encode_frame(body)).collect();
        let end = StreamEnd::Boundary;
        assert_eq!(decode(&again, sizes, limits), (bodies.clone(), end));
    }
    for body in bodies {
        assert!(body.len() <= limits.body_bytes_max);
        match IncomingMessage::parse(&body) {
            Ok(message) => {
                check_fields(&message, &body);
                check_message(&message);
            }
            Err(malformed) => check_refusal(&malformed, &body),
        }
    }
});

#[derive(Debug, PartialEq)]
enum StreamEnd {
    /// The stream ended between two frames.
    Boundary,
    InFrame,
    /// An error of this kind occurred before the end of the stream.
    Failed(std::mem::Discriminant<FrameError>),
}

/// Decodes the stream in chunks with these sizes, which repeat, and returns the bodies of all frames. Without sizes,
/// the whole stream is one chunk.
fn decode(stream: &[u8], sizes: &[u8], limits: FrameLimits) -> (Vec<Vec<u8>>, StreamEnd) {
    let mut decoder = FrameDecoder::new(limits);
    let mut bodies = Vec::new();
    let mut rest = stream;
    let has_progress = sizes.iter().any(|size| size % LAZY > 0);
    let mut sizes = if has_progress { sizes } else { &[] }.iter().cycle();
    loop {
        let size = sizes.next().copied();
        let len = size.map_or(rest.len(), |size| usize::from(size % LAZY).min(rest.len()));
        let (chunk, later) = rest.split_at(len);
        rest = later;
        decoder.push(chunk);
        if !rest.is_empty() && size.is_some_and(|size| size >= LAZY) {
            continue;
        }
        loop {
            match decoder.next_frame() {
                Ok(Some(body)) => bodies.push(body),
                Ok(None) => break,
                Err(error) => {
                    decoder.push(b"Content-Length: 0\r\n\r\n");
                    assert_eq!(decoder.next_frame(), Err(error.clone()));
                    assert!(!decoder.is_at_boundary());
                    let kind = std::mem::discriminant(&error);
                    return (bodies, StreamEnd::Failed(kind));
                }
            }
        }
        if rest.is_empty() {
            let is_boundary = decoder.is_at_boundary();
            let end = if is_boundary {
                StreamEnd::Boundary
            } else {
                StreamEnd::InFrame
            };
            return (bodies, end);
        }
    }
}

/// Like [`decode`], but reads the whole stream line by line.
fn decode_simply(stream: &[u8], limits: FrameLimits) -> (Vec<Vec<u8>>, StreamEnd) {
    let mut bodies = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (len, body_and_later) = match header_simply(rest, limits) {
            Ok(Some(header)) => header,
            Ok(None) => return (bodies, StreamEnd::InFrame),
            Err(error) => return (bodies, StreamEnd::Failed(std::mem::discriminant(&error))),
        };
        let Some((body, later)) = body_and_later.split_at_checked(len) else {
            return (bodies, StreamEnd::InFrame);
        };
        bodies.push(body.to_vec());
        rest = later;
    }
    (bodies, StreamEnd::Boundary)
}

/// Length of the body, and the bytes that follow the header.
fn header_simply(
    stream: &[u8],
    FrameLimits {
        header_bytes_max,
        body_bytes_max,
    }: FrameLimits,
) -> Result<Option<(usize, &[u8])>, FrameError> {
    let mut length = None;
    let mut at = 0;
    loop {
        let line_len = stream[at..].iter().position(|byte| *byte == b'\n');
        if line_len.map_or(stream.len(), |len| at + len + 1) > header_bytes_max {
            return Err(FrameError::HeaderTooLong { header_bytes_max });
        }
        let Some(line_len) = line_len else {
            return Ok(None);
        };
        let line = &stream[at..at + line_len];
        at += line_len + 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let length = length.ok_or(FrameError::MissingContentLength)?;
            return Ok(Some((length, &stream[at..])));
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().unwrap_or_default();
        let Some(value) = parts.next() else {
            return Err(FrameError::InvalidHeaderLine {
                line: String::new(),
            });
        };
        if !name.trim_ascii().eq_ignore_ascii_case(b"content-length") {
            continue;
        }
        if length.is_some() {
            return Err(FrameError::RepeatedContentLength);
        }
        let value = String::from_utf8_lossy(value.trim_ascii()).into_owned();
        if value.is_empty() || value.contains(|c: char| !c.is_ascii_digit()) {
            return Err(FrameError::InvalidContentLength { value });
        }
        let len = value.parse().ok().filter(|len| *len <= body_bytes_max);
        length = Some(len.ok_or(FrameError::BodyTooLong {
            value,
            body_bytes_max,
        })?);
    }
}

/// Checks that the values of the message are the values of the fields in the JSON text.
fn check_fields(message: &IncomingMessage, body: &[u8]) {
    let fields: Fields = serde_json::from_slice(body).expect("an object");
    let raw = |name: &str| fields.get(name).map(|value| value.get());
    let text = |name: &str| -> String {
        serde_json::from_str(raw(name).expect("a field")).expect("a string")
    };
    assert_eq!(text("jsonrpc"), "2.0");
    let params_of =
        |params: &Option<Box<RawValue>>| params.as_ref().map(|params| params.get().to_owned());
    let sent_params = raw("params")
        .filter(|params| *params != "null")
        .map(str::to_owned);
    match message {
        IncomingMessage::Request(request) => {
            assert_eq!(Some(request.id.as_json()), raw("id"));
            assert_eq!(request.method, text("method"));
            assert_eq!(params_of(&request.params), sent_params);
        }
        IncomingMessage::Notification { method, params } => {
            assert_eq!((raw("id"), method.clone()), (None, text("method")));
            assert_eq!(params_of(params), sent_params);
        }
        IncomingMessage::Response { id, result } => {
            let id = id.as_ref().map_or("null", |id| id.as_json());
            assert_eq!((Some(id), raw("method")), (raw("id"), None));
            match result {
                Ok(result) => assert_eq!(Some(result.get()), raw("result")),
                Err(error) => check_error(error, raw("error").expect("an error")),
            }
        }
    }
}

fn check_error(error: &RpcError, sent: &str) {
    let sent: Fields = serde_json::from_str(sent).expect("an object");
    assert_eq!(error.code.to_string(), sent["code"].get());
    let message: String = serde_json::from_str(sent["message"].get()).expect("a string");
    assert_eq!(error.message, message);
    let sent_data = sent.get("data").map_or("null", |data| data.get());
    let data = error
        .data
        .as_ref()
        .map_or("null".to_owned(), ToString::to_string);
    assert_eq!(data == "null", sent_data == "null");
    // A value that looks like JSON but stands inside a string must stay a string.
    assert!(
        depth(&data) <= depth(sent_data),
        "{sent_data} was read as {data}"
    );
    assert_eq!(data.starts_with('{'), sent_data.starts_with('{'));
}

/// Deepest nesting of a JSON text.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth -= 1,
            _ => {}
        }
    }
    deepest
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
    // The debug text contains every field, and raw JSON exactly as written.
    assert_eq!(format!("{again:?}"), format!("{message:?}"));
}

fn check_refusal(malformed: &MalformedMessage, body: &[u8]) {
    let fields: Option<Fields> = serde_json::from_slice(body).ok();
    let is_json = serde_json::from_slice::<&RawValue>(body).is_ok();
    let code = malformed.error.code;
    if code == RpcError::INVALID_REQUEST {
        assert!(is_json);
    } else {
        assert_eq!(code, RpcError::PARSE_ERROR);
        // A field name that contains only half of a surrogate pair is not readable JSON.
        assert!(fields.is_none());
        assert_eq!((&malformed.id, malformed.is_response), (&None, false));
    }
    if let Some(fields) = fields {
        let has = |name| fields.contains_key(name);
        let is_response = !has("method") && (has("result") || has("error"));
        assert_eq!(malformed.is_response, is_response);
        if let Some(id) = &malformed.id {
            assert_eq!(id.as_json(), fields["id"].get());
        }
    }

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
