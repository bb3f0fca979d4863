//! After the run: the next message.

use std::time::Duration;

use allstop_core::StopReason;
use allstop_session::{FollowUp, NewMessage, Session, Sessions};
use tokio::time::{sleep, timeout};

use crate::explore::NEXT_MESSAGE;
use crate::explore::case::{HANGS_AFTER, session_id};

/// Longer than anything takes that the owner does by itself after a turn.
const SETTLES: Duration = Duration::from_millis(200);

/// Waits until what follows a turn by itself has happened.
pub(super) async fn settle() {
    sleep(SETTLES).await;
}

/// Sends the next message to the session; where that is closed, to what the log says.
pub(super) async fn next_message(
    session: Option<&Session>,
    sessions: impl FnOnce() -> Sessions,
) -> Option<StopReason> {
    let message = || NewMessage::from(NEXT_MESSAGE).policy(FollowUp::Enqueue);
    if let Some(session) = session {
        if let Ok(sent) = session.send(message()) {
            let outcome = timeout(HANGS_AFTER, sent.outcome()).await.ok()?;
            return Some(outcome.stop_reason);
        }
        session.close().await;
    }
    let session = sessions().resume(session_id()).await.ok()?;
    let sent = session.send(message()).ok()?;
    let outcome = timeout(HANGS_AFTER, sent.outcome()).await.ok()?;
    session.close().await;
    Some(outcome.stop_reason)
}
