//! Kind of a stored record. The kind is found without decoding the record.

/// Kinds of records that a backward search can find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum RecordKind {
    /// The first record.
    SessionOpened,
    /// The start of a turn.
    TurnStarted,
    /// The end of a completed turn.
    TurnCommitted,
    /// The end of any other turn.
    TurnStopped,
    /// A summary that replaces turns.
    Compacted,
    /// Another record.
    Other,
}

impl RecordKind {
    /// Finds the kind of a record. `None` if the record does not start as this version writes records.
    pub(in crate::session) fn of(record: &[u8]) -> Option<Self> {
        let rest = record.strip_prefix(super::PREFIX)?;
        let tag = rest.strip_prefix(b"\"type\":\"")?;
        Some(match tag.split(|byte| *byte == b'"').next()? {
            b"session_opened" => Self::SessionOpened,
            b"turn_started" => Self::TurnStarted,
            b"turn_committed" => Self::TurnCommitted,
            b"turn_stopped" => Self::TurnStopped,
            b"compacted" => Self::Compacted,
            _ => Self::Other,
        })
    }
}
