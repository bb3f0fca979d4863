//! `sessions export`: the conversation of a session, as Markdown for people or as JSON for programs.

use std::sync::Arc;

use allstop_core::SessionId;
use allstop_core::message::Message;
use allstop_log::{Log, read_session};
use allstop_terminal::Styled;
use serde::Serialize;

use super::Printed;
use super::error::SessionsError;
use super::find::find;
use crate::display::transcript;
use crate::json_document::DocumentSchema;

#[derive(Serialize)]
struct Transcript<'a> {
    session_id: &'a SessionId,
    messages: &'a [Arc<Message>],
}

/// Reads the conversation of a session.
///
/// # Errors
/// If no session or several sessions match `id`, or if the session cannot be read.
pub(super) async fn export(
    log: &dyn Log,
    id: &str,
    as_json: bool,
) -> Result<Printed, SessionsError> {
    let id = find(log, id).await?;
    let (state, _owner) = read_session(log, &id).await?;
    let conversation = state.conversation();
    Ok(if as_json {
        Printed::Json(DocumentSchema::Transcript.line(&Transcript {
            session_id: &id,
            messages: &conversation.messages,
        }))
    } else {
        let markdown = transcript::markdown(&transcript::entries(conversation));
        Printed::Text(Styled::marked_text(&format!(
            "# Session {id}\n\n{markdown}"
        )))
    })
}
