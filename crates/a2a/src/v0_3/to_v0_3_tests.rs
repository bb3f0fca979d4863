//! Responses in the JSON of version 1, and the equal responses of version 0.3.

use a2a_pb::protojson_conv;
use serde_json::json;

use super::*;

fn event_of(new: Value) -> Value {
    let response: StreamResponse = protojson_conv::from_value(new).expect("an event");
    event(response).expect("JSON")
}

#[test]
fn task_has_its_kind_and_no_envelope() {
    let new = json!({"task": {
        "id": "t", "contextId": "c",
        "status": {
            "state": "TASK_STATE_INPUT_REQUIRED", "timestamp": "2026-01-02T03:04:05.678Z",
            "message": {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "which?"}]},
        },
        "artifacts": [{
            "artifactId": "a", "name": "n", "description": "d", "extensions": ["e"],
            "parts": [
                {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"},
                {"url": "https://a.example/b"},
                {"data": {"k": "v"}},
                {"data": ["v"], "metadata": {"m": "n"}},
            ],
        }],
        "history": [{"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}],
        "metadata": {"https://a.example": {"receipt": true}},
    }});
    let old = json!({
        "kind": "task", "id": "t", "contextId": "c",
        "status": {
            "state": "input-required", "timestamp": "2026-01-02T03:04:05.678Z",
            "message": {
                "kind": "message", "messageId": "q", "role": "agent",
                "parts": [{"kind": "text", "text": "which?"}],
            },
        },
        "artifacts": [{
            "artifactId": "a", "name": "n", "description": "d", "extensions": ["e"],
            "parts": [
                {"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"}},
                {"kind": "file", "file": {"uri": "https://a.example/b"}},
                {"kind": "data", "data": {"k": "v"}},
                {"kind": "data", "data": {"value": ["v"]}, "metadata": {"m": "n", "data_part_compat": true}},
            ],
        }],
        "history": [{
            "kind": "message", "messageId": "m", "role": "user",
            "parts": [{"kind": "text", "text": "x"}],
        }],
        "metadata": {"https://a.example": {"receipt": true}},
    });
    assert_eq!(event_of(new), old);
}

#[test]
fn status_that_ends_the_stream_is_final() {
    for (state, old, is_final) in [
        ("SUBMITTED", "submitted", false),
        ("WORKING", "working", false),
        ("AUTH_REQUIRED", "auth-required", false),
        ("INPUT_REQUIRED", "input-required", true),
        ("COMPLETED", "completed", true),
        ("FAILED", "failed", true),
        ("CANCELED", "canceled", true),
        ("REJECTED", "rejected", true),
    ] {
        let status = json!({"state": format!("TASK_STATE_{state}")});
        let update = json!({"taskId": "t", "contextId": "c", "status": status});
        let expected = json!({
            "kind": "status-update", "taskId": "t", "contextId": "c", "status": {"state": old},
            "final": is_final,
        });
        assert_eq!(event_of(json!({"statusUpdate": update})), expected);
    }
}

#[test]
fn artifact_updates_and_messages_have_their_kinds() {
    let artifact = json!({"artifactId": "a", "parts": [{"text": "x"}]});
    let update = json!({
        "taskId": "t", "contextId": "c", "artifact": artifact, "append": true, "lastChunk": true,
    });
    let expected = json!({
        "kind": "artifact-update", "taskId": "t", "contextId": "c",
        "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]},
        "append": true, "lastChunk": true,
    });
    assert_eq!(event_of(json!({"artifactUpdate": update})), expected);
    let message =
        json!({"messageId": "m", "role": "ROLE_AGENT", "contextId": "c", "parts": [{"text": "x"}]});
    let expected = json!({
        "kind": "message", "messageId": "m", "role": "agent", "contextId": "c",
        "parts": [{"kind": "text", "text": "x"}],
    });
    assert_eq!(event_of(json!({"message": message})), expected);
}

#[test]
fn webhook_has_a_list_of_schemes() {
    let config = protojson_conv::from_value(json!({
        "taskId": "t", "id": "p", "url": "https://a.example", "token": "s",
        "authentication": {"scheme": "Bearer", "credentials": "x"},
    }));
    let config = serde_json::to_value(push_config(config.expect("a configuration")));
    let expected = json!({"taskId": "t", "pushNotificationConfig": {
        "id": "p", "url": "https://a.example", "token": "s",
        "authentication": {"schemes": ["Bearer"], "credentials": "x"},
    }});
    assert_eq!(config.expect("JSON"), expected);
}
