use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{encode_error_response, encode_notification, encode_request, encode_response};

/// Formats the message as text, with its raw JSON.
fn parsed(body: &str) -> String {
    match IncomingMessage::parse(body.as_bytes()).expect(body) {
        IncomingMessage::Request(request) => {
            let params = request.params.map(|params| params.get().to_owned());
            format!("request {} {} {params:?}", request.id, request.method)
        }
        IncomingMessage::Notification { method, params } => {
            let params = params.map(|params| params.get().to_owned());
            format!("notification {method} {params:?}")
        }
        IncomingMessage::Response { id, result } => {
            let id = id.map(|id| id.to_string());
            format!(
                "response {id:?} {:?}",
                result.map(|result| result.get().to_owned())
            )
        }
    }
}

#[test]
fn valid_messages_are_read() {
    let table = [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a": [ 1.0 ]}}"#,
            r#"request 1 m Some("{\"a\": [ 1.0 ]}")"#,
        ),
        (
            r#" { "params" : [] , "method":"m", "id" : "a\u0062" ,"jsonrpc":"2.\u0030" } "#,
            r#"request "a\u0062" m Some("[]")"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":-1.50,"method":""}"#,
            "request -1.50  None",
        ),
        (
            r#"{"jsonrpc":"2.0","id":0,"method":"m","params":null}"#,
            "request 0 m None",
        ),
        (
            r#"{"jsonrpc":"2.0","method":"\u00fc","other":{"id":1},"\u0070arams":[1]}"#,
            r#"notification ü Some("[1]")"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
            r#"response Some("1") Ok("null")"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":"x","error":{"code":-1,"message":"no","other":1}}"#,
            r#"response Some("\"x\"") Err(RpcError { code: -1, message: "no", data: None })"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no","data":[1]}}"#,
            r#"response None Err(RpcError { code: -1, message: "no", data: Some(Array [Number(1)]) })"#,
        ),
    ];
    for (body, expected) in table {
        assert_eq!(parsed(body), expected, "{body}");
    }
}

/// Checks the error of a body: its code, the id as JSON, and whether the body counts as a response.
#[track_caller]
fn check(body: impl AsRef<[u8]>, code: i64, id: Option<&str>, is_response: bool) {
    let body = body.as_ref();
    let shown = String::from_utf8_lossy(body);
    let malformed = IncomingMessage::parse(body).expect_err(&shown);
    assert_eq!(malformed.error.code, code, "{shown}");
    assert_eq!(malformed.id.as_ref().map(RpcId::as_json), id, "{shown}");
    assert_eq!(malformed.is_response, is_response, "{shown}");
}

#[test]
fn bodies_that_are_not_json_are_parse_errors() {
    let table: [&[u8]; 15] = [
        b"",
        b" ",
        b"{",
        b"nul",
        b"{}{}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",}",
        b"{'jsonrpc':'2.0'}",
        b"{\"id\":01}",
        b"{\"id\":NaN}",
        b"{\"id\":\"\n\"}",
        b"[{\"jsonrpc\":\"2.0\",\"method\":\"m\"},{\"jsonrpc\"",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"other\":\"\xc3\"}",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}",
    ];
    for body in table {
        check(body, RpcError::PARSE_ERROR, None, false);
    }
}

#[test]
fn invalid_requests_keep_their_id() {
    for (rest, id) in [
        (r#""id":1,"method":"m""#, Some("1")),
        (r#""jsonrpc":"1.0","id":1.0,"method":"m""#, Some("1.0")),
        (r#""jsonrpc":2.0,"id":"x","method":"m""#, Some("\"x\"")),
        (r#""jsonrpc":null,"id":1,"method":"m""#, Some("1")),
        (r#""jsonrpc":"2.0","id":1"#, Some("1")),
        (r#""jsonrpc":"2.0","id":1,"method":null"#, Some("1")),
        (r#""jsonrpc":"2.0","id":1,"method":7"#, Some("1")),
        (r#""jsonrpc":"2.0","id":1,"method":"\ud800""#, Some("1")),
        (
            r#""jsonrpc":"2.0","id":1,"method":"m","params":1"#,
            Some("1"),
        ),
        (
            r#""jsonrpc":"2.0","id":1,"method":"m","params":"x""#,
            Some("1"),
        ),
        (
            r#""jsonrpc":"2.0","id":1,"method":"m","params":false"#,
            Some("1"),
        ),
        (
            r#""jsonrpc":"2.0","id":1,"method":"m","result":1"#,
            Some("1"),
        ),
        (
            r#""jsonrpc":"2.0","id":1,"method":"m","error":null"#,
            Some("1"),
        ),
        (
            r#""jsonrpc":"2.0","id":1,"method":"m","method":"m""#,
            Some("1"),
        ),
        (r#""jsonrpc":"2.0","id":1,"id":2,"method":"m""#, None),
        (r#""id":1,"id":1,"method":"m","method":"m""#, None),
        (r#""method":"m","method":"m","id":1,"\u0069d":1"#, None),
        (r#""jsonrpc":"2.0","id":null,"method":"m""#, None),
        (r#""jsonrpc":"2.0","id":true,"method":"m""#, None),
        (r#""jsonrpc":"2.0","id":[1],"method":"m""#, None),
        (r#""jsonrpc":"2.0","id":{},"method":"m""#, None),
        (r#""jsonrpc":"2.0","method":1,"params":[]"#, None),
        (r#""jsonrpc":"2.0","method":"m","params":1"#, None),
        (r#""jsonrpc":"2.0","#, None),
    ] {
        let body = format!("{{{}}}", rest.trim_end_matches(','));
        check(body, RpcError::INVALID_REQUEST, id, false);
    }
}

#[test]
fn values_that_are_not_objects_are_invalid_requests() {
    for body in [
        "[]",
        "[1]",
        "{}",
        "1",
        "null",
        "\"x\"",
        r#"["2.0",1,"m",[],null,null]"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#,
    ] {
        check(body, RpcError::INVALID_REQUEST, None, false);
    }
}

#[test]
fn invalid_responses_are_marked() {
    for (rest, id) in [
        (
            r#""jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}"#,
            Some("1"),
        ),
        (
            r#""jsonrpc":"2.0","id":1,"result":1,"error":null"#,
            Some("1"),
        ),
        (r#""jsonrpc":"2.0","id":1,"error":null"#, Some("1")),
        (r#""jsonrpc":"2.0","id":1,"error":[1,"no"]"#, Some("1")),
        (r#""jsonrpc":"2.0","id":1,"error":{"code":1}"#, Some("1")),
        (
            r#""jsonrpc":"2.0","id":1,"error":{"message":""}"#,
            Some("1"),
        ),
        (
            r#""jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":""}"#,
            Some("1"),
        ),
        (
            r#""jsonrpc":"2.0","id":1,"error":{"code":9223372036854775808,"message":""}"#,
            Some("1"),
        ),
        (
            r#""jsonrpc":"2.0","id":1,"error":{"code":1,"message":null}"#,
            Some("1"),
        ),
        (r#""id":1,"result":1"#, Some("1")),
        (r#""jsonrpc":"2.0","id":1,"result":1,"result":2"#, Some("1")),
        (r#""jsonrpc":"2.0","result":1"#, None),
        (r#""jsonrpc":"2.0","id":null,"result":1"#, None),
        (r#""jsonrpc":"2.0","error":{"code":1,"message":""}"#, None),
        (
            r#""jsonrpc":"2.0","id":[],"error":{"code":1,"message":""}"#,
            None,
        ),
    ] {
        check(format!("{{{rest}}}"), RpcError::INVALID_REQUEST, id, true);
    }
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{deep},"other":{deep}}}"#);
    let message = IncomingMessage::parse(body.as_bytes()).expect("a request");
    let IncomingMessage::Request(request) = message else {
        panic!("a request");
    };
    assert_eq!(request.params.expect("parameters").get(), deep);
    check(&deep, RpcError::INVALID_REQUEST, None, false);
    check("[".repeat(1_000_000), RpcError::PARSE_ERROR, None, false);
    let id = format!(r#"{{"jsonrpc":"2.0","id":{deep},"method":"m"}}"#);
    check(id, RpcError::INVALID_REQUEST, None, false);
    // The field `data` of an error is parsed into values, so the depth limit of the JSON library applies.
    let error =
        format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":1,"message":"","data":{deep}}}}}"#);
    check(error, RpcError::INVALID_REQUEST, Some("1"), true);
}

/// The JSON library would read an object with a reserved key as a different value, which may have any depth.
#[test]
fn reserved_keys_are_refused_wherever_they_are() {
    let deep = r#"[{"$serde_json::private::RawValue":"[1]"}]"#;
    for (rest, is_response) in [
        (format!(r#""method":"m","params":{deep}"#), false),
        (format!(r#""method":"m","params":{{"a":{deep}}}"#), false),
        (format!(r#""method":"m","unknown":{deep}"#), false),
        (format!(r#""result":{deep}"#), true),
        (
            format!(r#""error":{{"code":1,"message":"","data":{deep}}}"#),
            true,
        ),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#);
        check(body, RpcError::INVALID_REQUEST, Some("1"), is_response);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn any_id() -> impl Strategy<Value = RpcId> {
    let text = prop_oneof![
        any::<i128>().prop_map(|number| number.to_string()),
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,5})?",
        any::<String>().prop_map(|text| json!(text).to_string()),
        "\"([a-z]|\\\\u[0-9a-fA-F]{4}|\\\\[nrt/\"])*\"",
    ];
    text.prop_map(|text| serde_json::from_str(&text).expect("an id"))
}

proptest! {
    #[test]
    fn encoded_messages_parse_to_the_same(
        id in any_id(),
        method in any::<String>(),
        value in any_json(),
        code in any::<i64>(),
    ) {
        let params = json!([value]);
        let body = encode_request(&id, &method, &params).expect("a request");
        let Ok(IncomingMessage::Request(request)) = IncomingMessage::parse(&body) else {
            panic!("a request");
        };
        prop_assert_eq!(request.id.as_json(), id.as_json());
        prop_assert_eq!(&request.method, &method);
        let read = request.params.expect("parameters");
        prop_assert_eq!(read.get(), params.to_string());

        let body = encode_notification(&method, &params).expect("a notification");
        let is_same = matches!(
            IncomingMessage::parse(&body),
            Ok(IncomingMessage::Notification { method: read, params: Some(_) }) if read == method
        );
        prop_assert!(is_same);

        let body = encode_response(&id, &value).expect("a response");
        let Ok(IncomingMessage::Response { id: Some(read), result: Ok(result) }) =
            IncomingMessage::parse(&body)
        else {
            panic!("a response");
        };
        prop_assert_eq!(read.as_json(), id.as_json());
        prop_assert_eq!(result.get(), value.to_string());

        let data = Some(value).filter(|value| !value.is_null());
        let error = RpcError { code, message: method, data };
        let body = encode_error_response(Some(&id), &error);
        let Ok(IncomingMessage::Response { id: Some(read), result: Err(read_error) }) =
            IncomingMessage::parse(&body)
        else {
            panic!("an error");
        };
        prop_assert_eq!(read.as_json(), id.as_json());
        prop_assert_eq!(read_error, error);
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "{", "}", "[", "]", ",", ":", "null", "1", "\"2.0\"", "\"jsonrpc\"", "\"id\"",
                "\"method\"", "\"params\"", "\"result\"", "\"error\"", "\"code\"", "\"message\"",
                "\"jsonrpc\":\"2.0\"", "\"id\":1", "\"method\":\"m\"", "\"", "\\",
            ]),
            0..16,
        ),
    ) {
        let body = pieces.concat();
        if let Err(malformed) = IncomingMessage::parse(body.as_bytes()) {
            let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&body).is_ok();
            let code = if is_json { RpcError::INVALID_REQUEST } else { RpcError::PARSE_ERROR };
            prop_assert_eq!(malformed.error.code, code);
        }
    }
}
