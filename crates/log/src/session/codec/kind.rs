//! The kind of a stored record, told without reading the record.

/// The kinds that are looked for from the end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum RecordKind {
    /// The first record.
    SessionOpened,
    /// The start of a turn.
    TurnStarted,
    /// The ending of a completed turn.
    TurnCommitted,
    /// The ending of any other turn.
    TurnStopped,
    /// A summary in the place of turns.
    Compacted,
    /// Another record.
    Other,
}

impl RecordKind {
    /// `None` for a record that is not written as this version writes them.
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
