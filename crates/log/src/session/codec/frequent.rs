//! Fast decoder for the most frequent records. The decoder needs only one pass over the record.
//!
//! For a tagged enum, serde's derived decoder copies all fields before it reads them. This module's writer puts the tag
//! directly after the version, so the decoder knows the tag before the first field. All other records use the derived
//! decoder.

use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::process::ProcessIdentity;
use allstop_core::record::{CallOutcome, SessionRecord, StartedCall, TurnOrigin};
use allstop_core::{
    CallId, FinishReason, ImageInfo, Message, MessageId, Timestamp, TurnNumber, Usage,
};
use serde::Deserialize;

/// Decodes the record if it has a frequent type and the usual form.
pub(super) fn decode(bytes: &[u8]) -> Option<SessionRecord> {
    let rest = bytes.strip_prefix(super::PREFIX)?;
    let tag = rest.strip_prefix(b"\"type\":\"")?;
    let tag = tag.split(|byte| *byte == b'"').next()?;
    // One check of the whole record is faster than one check of each string.
    let text = str::from_utf8(bytes).ok()?;
    match tag {
        b"call_started" => read::<CallStarted>(text),
        b"call_finished" => read::<CallFinished>(text),
        b"turn_started" => read::<TurnStarted>(text),
        b"turn_committed" => read::<TurnCommitted>(text),
        _ => None,
    }
}

fn read<'a, T: Deserialize<'a> + Into<SessionRecord>>(text: &'a str) -> Option<SessionRecord> {
    serde_json::from_str::<T>(text).ok().map(T::into)
}

/// Defines a struct with the fields of one variant.
macro_rules! variant {
    ($name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)* }) => {
        #[derive(Deserialize)]
        struct $name {
            $($(#[$attribute])* $field: $type,)*
        }

        impl From<$name> for SessionRecord {
            fn from(read: $name) -> Self {
                let $name { $($field),* } = read;
                Self::$name { $($field),* }
            }
        }
    };
}

variant!(CallStarted {
    turn: TurnNumber,
    call: StartedCall,
    at: Timestamp,
});

variant!(CallFinished {
    turn: TurnNumber,
    id: CallId,
    outcome: CallOutcome,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
    exit_code: Option<i32>,
    result: Option<Arc<str>>,
});

variant!(TurnStarted {
    turn: TurnNumber,
    at: Timestamp,
    input: Arc<str>,
    #[serde(default)]
    images: Vec<ImageInfo>,
    owner: Option<ProcessIdentity>,
    message: Option<MessageId>,
    #[serde(default)]
    origin: TurnOrigin,
    #[serde(rename = "told", default)]
    reported: Vec<BackgroundId>,
});

variant!(TurnCommitted {
    turn: TurnNumber,
    at: Timestamp,
    messages: Vec<Arc<Message>>,
    usage: Usage,
});

#[cfg(test)]
mod tests {
    use super::*;

    /// Records as this version writes them. Each optional field is present in one record and missing in another record.
    const RECORDS: &[&str] = &[
        r#""type":"turn_started","turn":1,"at":"2026-11-22T14:22:46.548Z","input":"h\u00efi \"you\"","owner":{"pid":2,"start_ticks":8,"boot_id":"7f"},"message":"m","origin":"background","told":["bg_1"]"#,
        r#""type":"turn_started","turn":3,"at":"2026-11-22T14:22:46.548Z","input":"","images":[{"media_type":"image/png","bytes":9}]"#,
        r#""type":"turn_started","turn":2,"at":"9999999999999999ms","input":"""#,
        r#""type":"call_started","turn":1,"call":{"id":"step_1","name":"m","kind":"model","reserved_tokens":7},"at":"2026-11-22T14:22:46.548Z""#,
        r#""type":"call_started","turn":1,"call":{"id":"c","name":"ls","kind":"tool","arguments":{"json":{"a":[1.5,null]}},"effect":"read_only"},"at":"2026-11-22T14:22:46Z""#,
        r#""type":"call_started","turn":1,"call":{"kind":"tool","arguments":{"malformed":"{"},"effect":"irreversible","name":"ls","id":"c","new":1},"at":"2026-11-22T14:22:46.548Z","new":{"kind":2}"#,
        r#""type":"call_finished","turn":1,"id":"c","outcome":"timed_out""#,
        r#""type":"call_finished","turn":1,"id":"c","outcome":"succeeded","usage":{"input_tokens":1,"output_tokens":2,"estimated":true}"#,
        r#""type":"call_finished","turn":1,"id":"c","outcome":"succeeded","finish":"content_filter","exit_code":-1,"result":"\u00e4 \"1\"""#,
        r#""type":"turn_committed","turn":1,"at":"2026-11-22T14:22:46.548Z","messages":[{"role":"user","text":"u","images":[{"media_type":"image/png","data":"iVBORw0KGgo="}]},{"role":"assistant","text":"","tool_calls":[{"id":"c","name":"ls","arguments":{"json":{}}}]},{"role":"tool","call_id":"c","content":"\ud83d\ude00","is_error":true},{"role":"tool","call_id":"c","content":""},{"role":"note","text":"n"},{"role":"summary","text":"s"},{"role":"stop_marker","text":"m"},{"text":"a","role":"assistant"}],"usage":{"input_tokens":1,"output_tokens":2,"estimated":false}"#,
    ];

    #[test]
    fn both_decoders_agree() {
        for fields in RECORDS {
            let record = format!("{{\"v\":1,{fields}}}");
            let derived: SessionRecord = serde_json::from_str(&record).expect("a record");
            assert_eq!(decode(record.as_bytes()), Some(derived), "{record}");
        }
    }

    #[test]
    fn both_decoders_agree_on_records_without_a_field() {
        let mut refused = 0;
        for fields in RECORDS {
            let mut record: serde_json::Value =
                serde_json::from_str(&format!("{{{fields}}}")).expect("JSON");
            let names: Vec<String> = record
                .as_object()
                .expect("an object")
                .keys()
                .cloned()
                .collect();
            for name in names.iter().filter(|name| *name != "type") {
                let object = record.as_object_mut().expect("an object");
                let removed = object.shift_remove(name).expect("it was there");
                let tag = object.shift_remove("type").expect("a tag");
                let rest = serde_json::to_string(object).expect("JSON");
                let text = format!("{{\"v\":1,\"type\":{tag},{}", &rest[1..]);
                let derived: Option<SessionRecord> = serde_json::from_str(&text).ok();
                refused += usize::from(derived.is_none());
                assert_eq!(decode(text.as_bytes()), derived, "{text}");
                object.insert(name.clone(), removed);
                object.insert("type".to_owned(), tag);
            }
        }
        assert!(refused > 20, "most fields are needed: {refused}");
    }

    #[test]
    fn other_records_use_the_derived_decoder() {
        for other in [
            r#"{"v":1,"type":"session_opened","session_id":"s"}"#,
            r#"{"type":"call_finished","turn":1,"id":"c","outcome":"stopped"}"#,
            r#"{"v":1,"turn":1,"type":"call_finished","id":"c","outcome":"stopped"}"#,
            r#"{"v":1,"type":"call_finished","turn":1,"id":"c","outcome":"stop"#,
            r#"{"v":1,"type":"call_fin"#,
        ] {
            assert_eq!(decode(other.as_bytes()), None, "{other}");
        }
    }
}
