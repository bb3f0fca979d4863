//! Format of a stored record: JSON that begins with the format version, `{"v":1,"type":"turn_started",…}`.

use allstop_core::json_text::nesting_depth;
use allstop_core::record::SessionRecord;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::RecordBytes;

mod extras;
mod frequent;
mod kind;

pub(super) use extras::RecordExtras;
pub(super) use kind::RecordKind;

/// Format version of this code. Raise it if an old reader would misread a new record. Do not raise it for optional
/// fields.
const FORMAT: u32 = 1;

/// First bytes of every record of this version.
const PREFIX: &[u8] = b"{\"v\":1,";

/// Maximum number of nested levels in a record. The turn engine accepts tool arguments with 128 levels, which is the
/// default limit of the JSON parser. The record adds a few levels. The stack of a thread is large enough for several
/// times as many levels.
const NESTING_MAX: usize = 256;

/// Reason why bytes cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordDecodeError {
    /// A newer version of Allstop wrote the record.
    #[error("the record has format {0}; this version reads format 1")]
    Newer(u32),
    /// No version of Allstop writes such bytes.
    #[error("the record is invalid")]
    Malformed(#[source] serde_json::Error),
}

/// Encodes a record at the end of `out`.
pub fn encode(record: &SessionRecord, out: &mut Vec<u8>) {
    let comma_at = out.len() + PREFIX.len() - 1;
    out.extend_from_slice(PREFIX);
    // Instead of a second pass, the opening brace of the object overwrites the last byte of the prefix. This byte is
    // then restored.
    out.truncate(comma_at);
    serde_json::to_writer(&mut *out, record)
        .expect("a record is plain data with text keys, and a buffer in memory takes it");
    if let Some(bracket) = out.get_mut(comma_at) {
        *bracket = b',';
    }
}

/// Encodes the records of one append, each with the fields from `extras_of`. All records are in one allocation. Uses
/// `scratch` as a buffer, so that later calls can use the same memory.
pub(super) fn encode_all(
    records: &[SessionRecord],
    mut extras_of: impl FnMut(&SessionRecord) -> RecordExtras,
    scratch: &mut Vec<u8>,
) -> Vec<RecordBytes> {
    scratch.clear();
    let ends: Vec<usize> = records
        .iter()
        .map(|record| {
            encode(record, scratch);
            extras_of(record).add_to(scratch);
            scratch.len()
        })
        .collect();
    let mut rest = RecordBytes::copy_from_slice(scratch);
    // The length of a record is the difference between its end and the end of the previous record.
    let mut begin = 0;
    ends.into_iter()
        .map(|end| rest.split_to(end - std::mem::replace(&mut begin, end)))
        .collect()
}

/// Decodes a record. `None` if the type is unknown and the record contains `"optional": true`.
pub fn decode(bytes: &[u8]) -> Result<Option<SessionRecord>, RecordDecodeError> {
    #[derive(Deserialize)]
    struct RecordEnvelope {
        v: u32,
        #[serde(default)]
        optional: bool,
    }
    if let Some(record) = frequent::decode(bytes) {
        return Ok(Some(record));
    }
    if bytes.starts_with(PREFIX)
        && let Ok(record) = serde_json::from_slice(bytes)
    {
        return Ok(Some(record));
    }
    let envelope: RecordEnvelope = read(bytes)?;
    if envelope.v > FORMAT {
        return Err(RecordDecodeError::Newer(envelope.v));
    }
    match read(bytes) {
        Ok(record) => Ok(Some(record)),
        Err(_) if envelope.optional => Ok(None),
        Err(error) => Err(error),
    }
}

/// Decodes JSON with up to [`NESTING_MAX`] levels. This is more than the parser's default limit.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RecordDecodeError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    if nesting_depth(bytes) <= NESTING_MAX {
        json.disable_recursion_limit();
    }
    T::deserialize(&mut json)
        .and_then(|value| json.end().map(|()| value))
        .map_err(RecordDecodeError::Malformed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use allstop_core::message::Arguments;
    use allstop_core::record::{CallOutcome, StartedCall, StartedCallKind};
    use allstop_core::{CallId, Effect, Message, Timestamp, ToolCall, TurnNumber, Usage};
    use serde_json::Value;

    use super::*;

    fn record() -> SessionRecord {
        SessionRecord::CallFinished {
            turn: TurnNumber(7),
            id: "call_1".into(),
            outcome: CallOutcome::Succeeded,
            usage: None,
            finish: None,
            exit_code: None,
            result: None,
        }
    }

    #[test]
    fn record_round_trips_as_json_with_its_version() {
        let mut bytes = Vec::new();
        encode(&record(), &mut bytes);
        assert_eq!(
            std::str::from_utf8(&bytes).unwrap(),
            r#"{"v":1,"type":"call_finished","turn":7,"id":"call_1","outcome":"succeeded"}"#
        );
        assert_eq!(decode(&bytes).unwrap(), Some(record()));
        let mut scratch = b"from before".to_vec();
        let none = |_: &SessionRecord| RecordExtras::default();
        let all = encode_all(&[record(), record(), record()], none, &mut scratch);
        assert_eq!(all, vec![RecordBytes::from(bytes); 3]);
        assert!(encode_all(&[], none, &mut scratch).is_empty());
        let extras = |_: &SessionRecord| RecordExtras::snapshot_at(crate::Version(9));
        let all = encode_all(&[record()], extras, &mut scratch);
        assert!(all[0].ends_with(br#""outcome":"succeeded","snapshot_at":9}"#));
        assert_eq!(decode(&all[0]).unwrap(), Some(record()));
        assert_eq!(RecordExtras::of(&all[0]), extras(&record()));
    }

    #[test]
    fn newer_format_is_no_damage() {
        let newer = br#"{"v":2,"type":"call_finished"}"#;
        assert!(matches!(decode(newer), Err(RecordDecodeError::Newer(2))));
        for damaged in [
            "",
            "{",
            "x",
            r#"{"v":1,"type":"call_fin"}"#,
            r#"{"type":"turn_started"}"#,
        ] {
            assert!(
                matches!(
                    decode(damaged.as_bytes()),
                    Err(RecordDecodeError::Malformed(_))
                ),
                "{damaged}"
            );
        }
    }

    /// Uses tool arguments with as many levels as a parser with its default limit accepts.
    #[test]
    fn parsed_arguments_round_trip_in_every_record() {
        for depth in [100, 120, 127] {
            let text = "[".repeat(depth) + &"]".repeat(depth);
            let arguments: Arguments = serde_json::from_str::<Value>(&text).unwrap().into();
            check_comes_back(&arguments);
        }
        for part in 1..500_u16 {
            check_comes_back(&Arguments::from(Value::from(f64::from(part) / 499.0)));
        }
    }

    fn check_comes_back(arguments: &Arguments) {
        let (id, name) = (CallId::from("call_1"), Arc::<str>::from("x"));
        let started = SessionRecord::CallStarted {
            turn: TurnNumber(1),
            call: StartedCall {
                id: id.clone(),
                name: name.clone(),
                kind: StartedCallKind::Tool {
                    arguments: arguments.clone(),
                    effect: Effect::ReadOnly,
                },
            },
            at: Timestamp::from_unix_ms(0),
        };
        let call = ToolCall {
            id,
            name,
            arguments: arguments.clone(),
        };
        let asked = Message::Assistant {
            text: "".into(),
            tool_calls: vec![call],
        };
        let committed = SessionRecord::TurnCommitted {
            turn: TurnNumber(1),
            at: Timestamp::from_unix_ms(0),
            messages: vec![Arc::new(asked)],
            usage: Usage::default(),
        };
        for record in [started, committed] {
            let mut bytes = Vec::new();
            encode(&record, &mut bytes);
            assert_eq!(decode(&bytes).unwrap(), Some(record));
        }
    }

    #[test]
    fn deep_nesting_is_damage_and_no_stack_overflow() {
        let bytes = r#"{"v":1,"a":"#.to_owned() + &"[".repeat(1_000_000);
        assert!(matches!(
            decode(bytes.as_bytes()),
            Err(RecordDecodeError::Malformed(_))
        ));
    }

    #[test]
    fn unknown_type_is_skipped_only_if_optional() {
        assert_eq!(
            decode(br#"{"v":1,"type":"mood","optional":true}"#).unwrap(),
            None
        );
        assert!(decode(br#"{"v":1,"type":"mood"}"#).is_err());
    }
}
