//! Notifications about the sessions of a server, which all connected clients receive.

use allstop_core::{SessionId, Timestamp};
use serde::Serialize;
use tokio::sync::broadcast;

use crate::connection::Client;

/// Maximum number of notifications that a client has not received. A client that does not read misses the oldest ones;
/// it can list the sessions instead.
pub(crate) const LIFECYCLE_EVENTS_MAX: usize = 256;

/// Change of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum LifecycleKind {
    #[serde(rename = "session.created")]
    Created,
    #[serde(rename = "session.updated")]
    Updated,
    #[serde(rename = "session.deleted")]
    Deleted,
}

/// Notification `session.lifecycle`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionLifecycleEvent {
    #[serde(rename = "type")]
    pub kind: LifecycleKind,
    pub session_id: SessionId,
    /// `None` for a deleted session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<LifecycleMetadata>,
}

/// Times of a session.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LifecycleMetadata {
    /// Time when this server opened the session.
    pub start_time: Timestamp,
    pub modified_time: Timestamp,
}

/// Sends all notifications to a client. Never completes before the server or the connection has ended.
pub(crate) async fn forward(
    mut events: broadcast::Receiver<SessionLifecycleEvent>,
    client: &Client,
) {
    loop {
        match events.recv().await {
            Ok(event) => {
                if client.notify("session.lifecycle", &event).await.is_err() {
                    return std::future::pending().await;
                }
            }
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
        }
    }
}
