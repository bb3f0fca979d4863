//! Page tokens: positions in a list of tasks, which a client returns to request the next page.

use a2a::A2AError;
use allstop_core::{TaskId, Timestamp};
use allstop_task::TaskPosition;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub(crate) fn encode((at, id): TaskPosition) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}/{id}", at.unix_ms()))
}

/// Decodes a page token to its position.
///
/// # Errors
/// Returns an error if this server did not create the token.
pub(crate) fn decode(token: &str) -> Result<TaskPosition, A2AError> {
    let invalid = || A2AError::invalid_params("pageToken is not one of this server's");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
    let text = String::from_utf8(bytes).map_err(|_| invalid())?;
    let (at, id) = text.split_once('/').ok_or_else(invalid)?;
    let at = at.parse().map_err(|_| invalid())?;
    Ok((Timestamp::from_unix_ms(at), TaskId::from(id)))
}
