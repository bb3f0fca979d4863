//! Events of the protocol. The id of an event is equal for every client, and after a restart.

use std::sync::Arc;

use allstop_core::{SessionId, Timestamp};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CopilotEvent {
    pub id: Uuid,
    pub timestamp: Timestamp,
    /// The preceding persisted event.
    #[serde(rename = "parentId")]
    pub parent_id: Option<Uuid>,
    /// Type of the event, such as `assistant.message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub data: Value,
    /// True if the history does not contain the event.
    #[serde(skip_serializing_if = "is_false")]
    pub ephemeral: bool,
    /// Sub-agent that the event concerns.
    #[serde(rename = "agentId", skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Arc<str>>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// Derives the id of an event from the session and the position of the event in the session. Equal positions have equal
/// ids.
pub(crate) fn event_id(session: &SessionId, place: &str) -> Uuid {
    let mut digest = Sha256::new();
    digest.update(session.as_str());
    digest.update([0]);
    digest.update(place);
    let digest = digest.finalize();
    let mut bytes = [0; 16];
    for (byte, of_digest) in bytes.iter_mut().zip(digest) {
        *byte = of_digest;
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_depends_on_session_and_position() {
        let id = |session: &str, place| event_id(&SessionId::new(session), place);
        assert_eq!(id("s", "1"), id("s", "1"));
        assert_ne!(id("s", "1"), id("s", "2"));
        assert_ne!(id("s", "1"), id("t", "1"));
        // Different pairs of session and position never produce the same text.
        assert_ne!(id("s1", ""), id("s", "1"));
    }
}
