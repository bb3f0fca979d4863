//! Requests of version 0.3, and the equal requests of version 1 in the JSON of the protocol.

use a2a_pb::protojson_conv;
use serde_json::json;

use super::*;

fn sent(params: Value) -> Value {
    let request = send_message(params).expect("a valid request");
    protojson_conv::to_value(&request).expect("JSON")
}

fn with_parts(parts: &Value) -> Value {
    json!({"message": {"kind": "message", "messageId": "m", "role": "user", "parts": parts}})
}

#[test]
fn parts_keep_their_content() {
    for (old, new) in [
        (
            json!({"kind": "text", "text": "hello"}),
            json!({"text": "hello"}),
        ),
        (
            json!({"kind": "text", "text": "hello", "metadata": {"n": 1.5}}),
            json!({"text": "hello", "metadata": {"n": 1.5}}),
        ),
        (
            json!({"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"}}),
            json!({"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"}),
        ),
        (
            json!({"kind": "file", "file": {"uri": "https://a.example/b"}}),
            json!({"url": "https://a.example/b"}),
        ),
        (
            json!({"kind": "data", "data": {"a": [1, null, {"b": true}]}}),
            json!({"data": {"a": [1, null, {"b": true}]}}),
        ),
        (
            json!({"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": true}}),
            json!({"data": [1]}),
        ),
        (
            json!({"kind": "data", "data": {"value": 1}, "metadata": {"data_part_compat": false}}),
            json!({"data": {"value": 1}, "metadata": {"data_part_compat": false}}),
        ),
    ] {
        let converted = sent(with_parts(&json!([old])));
        assert_eq!(
            number_free(&converted["message"]["parts"][0]),
            number_free(&new),
            "{old}"
        );
    }
}

/// The JSON format of the protocol has no integers in data, so 1 is also written as 1.0.
fn number_free(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string().replace(".0", "")
}

#[test]
fn message_and_configuration_keep_their_fields() {
    let old = json!({
        "message": {
            "kind": "message", "messageId": "m", "role": "user", "contextId": "c", "taskId": "t",
            "referenceTaskIds": ["r"], "extensions": ["e"], "metadata": {"k": "v"},
            "parts": [{"kind": "text", "text": "x"}],
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"], "blocking": false, "historyLength": 3,
            "pushNotificationConfig": {
                "id": "p", "url": "https://a.example", "token": "s",
                "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "x"},
            },
        },
        "metadata": {"m": "n"},
    });
    let new = json!({
        "message": {
            "messageId": "m", "role": "ROLE_USER", "contextId": "c", "taskId": "t",
            "referenceTaskIds": ["r"], "extensions": ["e"], "metadata": {"k": "v"},
            "parts": [{"text": "x"}],
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"], "returnImmediately": true, "historyLength": 3,
            "taskPushNotificationConfig": {
                "id": "p", "url": "https://a.example", "token": "s",
                "authentication": {"scheme": "Bearer", "credentials": "x"},
            },
        },
        "metadata": {"m": "n"},
    });
    assert_eq!(sent(old), new);
}

#[test]
fn only_blocking_false_returns_at_once() {
    for (blocking, returns) in [
        (json!(false), Some(true)),
        (json!(true), Some(false)),
        (json!(null), None),
    ] {
        let mut params = with_parts(&json!([{"kind": "text", "text": "x"}]));
        params["configuration"] = json!({"blocking": blocking});
        let configuration = send_message(params).unwrap().configuration.unwrap();
        assert_eq!(configuration.return_immediately, returns, "{blocking}");
    }
}

#[test]
fn history_of_length_zero_is_the_whole_history() {
    for (given, expected) in [(json!(0), None), (json!(null), None), (json!(2), Some(2))] {
        let request = get_task(json!({"id": "t", "historyLength": given})).unwrap();
        assert_eq!(request.history_length, expected, "{given}");
    }
}

#[test]
fn errors_name_the_field() {
    let text = |part: Value| with_parts(&json!([{"kind": "text", "text": "x"}, part]));
    for (params, named) in [
        (json!(null), "SendParams"),
        (json!(7), "SendParams"),
        (json!({}), "missing field `message`"),
        (json!({"message": []}), "message"),
        (with_parts(&json!({})), "message.parts: invalid type: map"),
        (text(json!("x")), "message.parts[1]"),
        (text(json!({"text": "x"})), "missing field `kind`"),
        (
            text(json!({"kind": "image"})),
            "message.parts[1].kind: unknown variant `image`, expected one of `text`, `file`, `data`",
        ),
        (text(json!({"kind": "text", "text": 7})), "message.parts[1]"),
        (
            text(json!({"kind": "data", "data": []})),
            "message.parts[1]",
        ),
        (
            text(json!({"kind": "file", "file": {}})),
            "message.parts[1]: a file needs either `bytes` or `uri`",
        ),
        (
            text(json!({"kind": "file", "file": {"bytes": "aGk=", "uri": "x"}})),
            "message.parts[1]: a file needs either `bytes` or `uri`",
        ),
        (
            text(json!({"kind": "file", "file": {"bytes": "?"}})),
            "message.parts[1]: file.bytes is not base64",
        ),
        (
            json!({"message": {"kind": "task", "messageId": "m", "role": "user", "parts": []}}),
            "message.kind: unknown variant `task`, expected `message`",
        ),
        (
            json!({"message": {"messageId": "m", "role": "agent", "parts": []}}),
            "message.role must be `user`",
        ),
        (
            json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": []}}),
            "message.role: unknown variant `ROLE_USER`, expected `user` or `agent`",
        ),
    ] {
        let error = send_message(params.clone()).expect_err("an invalid request");
        assert_eq!(error.code, -32602, "{params}");
        assert!(error.message.contains(named), "{params}: {error}");
    }
    for params in [
        json!({"id": "t", "historyLength": -1}),
        json!({"id": 7}),
        json!([]),
    ] {
        assert_eq!(
            get_task(params.clone()).expect_err("invalid").code,
            -32602,
            "{params}"
        );
    }
    let error = delete_push_config(json!({"id": "t"})).expect_err("it names no configuration");
    assert!(
        error.message.contains("pushNotificationConfigId"),
        "{error}"
    );
}

#[test]
fn errors_contain_no_secret() {
    let config = |field: &str, value: Value| {
        let mut config = json!({"url": "https://a.example"});
        config[field] = value;
        json!({"taskId": "t", "pushNotificationConfig": config})
    };
    for params in [
        config("token", json!(["hunter2"])),
        config("authentication", json!("hunter2")),
        config("authentication", json!({"schemes": "hunter2"})),
        config(
            "authentication",
            json!({"schemes": [], "credentials": ["hunter2"]}),
        ),
    ] {
        let error = set_push_config(params.clone()).expect_err("an invalid request");
        assert!(!error.message.contains("hunter2"), "{error}");
        assert!(error.message.contains("pushNotificationConfig."), "{error}");
    }
}
