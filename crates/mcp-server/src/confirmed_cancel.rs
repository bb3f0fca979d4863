//! Confirmed cancellations: an extension for clients that need a proof that a cancelled command has ended.
//!
//! By the protocol, a cancelled request should have no response, and the protocol library drops the response. A client
//! that names the extension in its capabilities gets one: an error after the verified end of the command, or at once if the
//! command was not started. Such a
//! cancellation does not reach the library, so the request stays open there. A command whose end is not verified gets
//! no response.

use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData};
use rmcp::service::RequestContext;
use tokio_util::sync::CancellationToken;

/// Identifier of the extension.
pub(crate) const EXTENSION: &str = "io.allstop/confirmed-cancel";

/// Code of the error: the request was cancelled. The code has this meaning in the Language Server Protocol.
const CANCELLED: ErrorCode = ErrorCode(-32_800);

/// True if the client of a request names the extension.
pub(crate) fn wants_confirmation(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    let extensions = capabilities.and_then(|capabilities| capabilities.extensions);
    extensions.is_some_and(|extensions| extensions.contains_key(EXTENSION))
}

/// A call whose cancellation the library does not see.
#[derive(Debug)]
pub(crate) struct ConfirmedCall(CancellationToken);

impl ConfirmedCall {
    /// A call that is cancelled with this token.
    pub(crate) fn new(token: CancellationToken) -> Self {
        Self(token)
    }

    pub(crate) async fn cancelled(&self) {
        self.0.cancelled().await;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// The response to a cancelled call whose command has verifiably ended, or was not started.
pub(crate) fn confirmation(text: String) -> ErrorData {
    ErrorData::new(CANCELLED, text, None)
}
