//! How a record is written: JSON with the version of the format in front, `{"v":1,"type":"turn_started",…}`.

use allstop_core::record::SessionRecord;
use bytes::{BufMut, BytesMut};
use serde::Deserialize;

use crate::RecordBytes;

/// The version that this code writes. It is raised when an old reader would misread a new record; a field that may be
/// left out does not need it.
const FORMAT: u32 = 1;

/// How every record of this version starts.
const PREFIX: &[u8] = b"{\"v\":1,";

/// Why bytes are no record.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// A newer Allstop wrote it.
    #[error("the record has the format {0}, this version reads 1")]
    Newer(u32),
    /// It is not what any version writes.
    #[error("the record cannot be read")]
    Malformed(#[source] serde_json::Error),
}

/// Writes a record behind what `buffer` holds and splits it off. The records that one buffer made share its memory,
/// so most cost no allocation of their own.
pub fn encode(record: &SessionRecord, buffer: &mut BytesMut) -> RecordBytes {
    debug_assert!(buffer.is_empty());
    // The object's own opening bracket lands on the prefix's last byte, which is then put back: no second pass.
    buffer.put_slice(PREFIX.split_last().expect("the prefix is not empty").1);
    let comma_at = buffer.len();
    serde_json::to_writer((&mut *buffer).writer(), record)
        .expect("a record is plain data with text keys, and a buffer in memory takes it");
    if let Some(bracket) = buffer.get_mut(comma_at) {
        *bracket = b',';
    }
    buffer.split().freeze()
}

/// Reads a record; `None` for one of an unknown type whose writer marked it `"optional": true`.
pub fn decode(bytes: &[u8]) -> Result<Option<SessionRecord>, DecodeError> {
    #[derive(Deserialize)]
    struct Envelope {
        v: u32,
        #[serde(default)]
        optional: bool,
    }
    if bytes.starts_with(PREFIX)
        && let Ok(record) = serde_json::from_slice(bytes)
    {
        return Ok(Some(record));
    }
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(DecodeError::Malformed)?;
    if envelope.v > FORMAT {
        return Err(DecodeError::Newer(envelope.v));
    }
    match serde_json::from_slice(bytes) {
        Ok(record) => Ok(Some(record)),
        Err(_) if envelope.optional => Ok(None),
        Err(error) => Err(DecodeError::Malformed(error)),
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::TurnNumber;
    use allstop_core::record::CallOutcome;

    use super::*;

    fn record() -> SessionRecord {
        SessionRecord::CallFinished {
            turn: TurnNumber(7),
            id: "call_1".into(),
            outcome: CallOutcome::Succeeded,
            usage: None,
        }
    }

    #[test]
    fn a_record_comes_back_and_is_json_with_its_version() {
        let mut buffer = BytesMut::new();
        let bytes = encode(&record(), &mut buffer);
        assert_eq!(
            std::str::from_utf8(&bytes).unwrap(),
            r#"{"v":1,"type":"call_finished","turn":7,"id":"call_1","outcome":"succeeded"}"#
        );
        assert_eq!(decode(&bytes).unwrap(), Some(record()));
        assert!(buffer.is_empty(), "the buffer is ready for the next");
    }

    #[test]
    fn a_newer_format_is_told_apart_from_damage() {
        let newer = br#"{"v":2,"type":"call_finished"}"#;
        assert!(matches!(decode(newer), Err(DecodeError::Newer(2))));
        for damaged in [
            "",
            "{",
            "x",
            r#"{"v":1,"type":"call_fin"}"#,
            r#"{"type":"turn_started"}"#,
        ] {
            assert!(
                matches!(decode(damaged.as_bytes()), Err(DecodeError::Malformed(_))),
                "{damaged}"
            );
        }
    }

    #[test]
    fn an_unknown_type_is_skipped_only_if_it_says_so() {
        assert_eq!(
            decode(br#"{"v":1,"type":"mood","optional":true}"#).unwrap(),
            None
        );
        assert!(decode(br#"{"v":1,"type":"mood"}"#).is_err());
    }
}
