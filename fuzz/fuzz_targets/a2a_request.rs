//! Any requests to the router of all bindings. Each request must get a complete, well-formed answer that is not a
//! server failure.
//!
//! The input consists of requests, separated by lines of `---`. Each request has the form of HTTP/1.1: a line with
//! method and path, headers, an empty line, and the body. If the method is `GRPC`, the body is sent as one message to
//! the gRPC method in the path. `$TASK` stands for the id of the first task that an answer contained. A request without
//! the header `a2a-version` gets the version 1.0; version 0.3 has an empty header.
#![no_main]

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, Method, Request, Uri, Version};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

#[path = "../a2a.rs"]
mod a2a;
use a2a::{WholeAnswer, answer, router, runtime};

/// Maximum number of requests in one input.
const REQUESTS_MAX: usize = 8;
/// JSON-RPC code of a server failure. This store and this agent never fail.
const INTERNAL_ERROR: i64 = -32603;
/// gRPC status codes for a server failure: `UNKNOWN` and `INTERNAL`.
const GRPC_FAILURES: [&str; 2] = ["2", "13"];

fuzz_target!(|bytes: &[u8]| {
    let separator: &[u8] = b"\n---\n";
    let mut requests = Vec::new();
    let mut rest = bytes;
    while requests.len() < REQUESTS_MAX {
        let cut = rest.windows(separator.len()).position(|at| at == separator);
        let Some(cut) = cut else {
            requests.push(rest);
            break;
        };
        requests.push(&rest[..cut]);
        rest = &rest[cut + separator.len()..];
    }
    let runtime = runtime();
    runtime.block_on(async {
        let router = router(None).await;
        let mut task = String::new();
        for text in requests {
            let Some((request, kind)) = request_of(text, &task) else {
                continue;
            };
            let answered = answer(&router, request).await;
            check(&kind, &answered);
            if task.is_empty() {
                task = task_named_in(&answered.body).unwrap_or_default();
            }
        }
    });
});

/// Kind of the expected answer.
enum AnswerKind {
    Http,
    /// The body of the request, if it is JSON.
    JsonRpc(Option<Value>),
    Grpc,
}

fn request_of(text: &[u8], task: &str) -> Option<(Request<Body>, AnswerKind)> {
    let (head, body) = match text.windows(2).position(|at| at == b"\n\n") {
        Some(end) => (&text[..end], &text[end + 2..]),
        None => (text, &[][..]),
    };
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let (method, path) = lines.next()?.split_once(' ')?;
    if method == "HEAD" {
        return None; // The answer has headers, but no body.
    }
    let is_grpc = method == "GRPC";
    let method = if is_grpc { "POST" } else { method };
    let path = path.replace("$TASK", task);
    let path = if is_grpc {
        format!("/lf.a2a.v1.A2AService/{path}")
    } else {
        path
    };
    let uri: Uri = path.parse().ok()?;
    let mut request = Request::builder()
        .method(method.parse::<Method>().ok()?)
        .uri(uri);
    let (mut has_type, mut has_version) = (false, false);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let name: HeaderName = name.trim().parse().ok()?;
        has_type |= name == CONTENT_TYPE;
        has_version |= name == "a2a-version";
        let value = HeaderValue::from_bytes(value.trim().as_bytes()).ok()?;
        request.headers_mut()?.append(name, value);
    }
    if !has_version {
        request = request.header("a2a-version", "1.0");
    }
    if is_grpc {
        let mut framed = vec![0];
        framed.extend(u32::try_from(body.len()).ok()?.to_be_bytes());
        framed.extend(body);
        let request = request.version(Version::HTTP_2).header("te", "trailers");
        let request = request.header(CONTENT_TYPE, "application/grpc");
        return Some((request.body(framed.into()).ok()?, AnswerKind::Grpc));
    }
    if !has_type {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = match std::str::from_utf8(body) {
        Ok(utf8) => utf8.replace("$TASK", task).into_bytes(),
        Err(_) => body.to_vec(),
    };
    let parsed = serde_json::from_slice(&body).ok();
    let request = request.body(Body::from(body)).ok()?;
    let is_json_rpc = request.method() == Method::POST && request.uri().path() == "/";
    let kind = if is_json_rpc {
        AnswerKind::JsonRpc(parsed)
    } else {
        AnswerKind::Http
    };
    Some((request, kind))
}

fn check(kind: &AnswerKind, answer: &WholeAnswer) {
    let text = String::from_utf8_lossy(&answer.body);
    let status = answer.status;
    assert!(status.as_u16() != 500, "{status}: {text}");
    let content_type = answer.headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|v| v.to_str().ok()).unwrap_or("");
    if let AnswerKind::Grpc = kind {
        if answer.is_open {
            return; // The status comes only at the end of the stream.
        }
        let code = |headers: &axum::http::HeaderMap| headers.get("grpc-status").cloned();
        let code = answer
            .trailers
            .as_ref()
            .and_then(code)
            .or(code(&answer.headers));
        let code = code.expect("a gRPC status");
        let code = code.to_str().expect("a number");
        let headers = &answer.headers;
        let message = headers.get("grpc-message").and_then(|v| v.to_str().ok());
        // gRPC also uses this status for a message that cannot be read.
        let is_unreadable =
            message.is_some_and(|message| message.starts_with("failed%20to%20decode"));
        let is_failure = GRPC_FAILURES.contains(&code) && !is_unreadable;
        assert!(!is_failure, "{code}: {headers:?}");
        return;
    }
    let is_stream = content_type.starts_with("text/event-stream");
    let payloads: Vec<Value> = if is_stream {
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).expect("JSON in an event"))
            .collect()
    } else if content_type.contains("json") {
        vec![serde_json::from_slice(&answer.body).expect("JSON as the header says")]
    } else {
        Vec::new()
    };
    let AnswerKind::JsonRpc(request) = kind else {
        return;
    };
    assert!(
        !payloads.is_empty() || request.is_none() || !status.is_success(),
        "JSON without a JSON-RPC answer: {status} {text}"
    );
    for payload in payloads {
        assert_eq!(payload["jsonrpc"], "2.0", "{payload}");
        let has = |field: &str| payload.get(field).is_some();
        assert!(has("result") != has("error"), "{payload}");
        assert_ne!(payload["error"]["code"], INTERNAL_ERROR, "{payload}");
        let asked = request.as_ref().and_then(|request| request.get("id"));
        if let Some(id) = asked.filter(|_| has("result")) {
            assert_eq!(&payload["id"], id, "{payload}");
        }
    }
}

/// Id of the task in an answer of JSON-RPC or HTTP+JSON.
fn task_named_in(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let result = answer.get("result").unwrap_or(&answer);
    // In version 0.3, the result is the task.
    let task = result.get("task").unwrap_or(result);
    let id = task.get("id")?.as_str()?;
    Some(id.to_owned())
}
