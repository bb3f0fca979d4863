//! Confirmed cancellations: an extension for clients that need a proof that a cancelled command has ended.
//!
//! By the protocol, a cancelled request should have no response, and the protocol library drops the response. A client
//! that names the extension in its capabilities gets one: an error after the verified end of the command. Such a
//! cancellation does not reach the library, so the request stays open there. A command whose end is not verified gets
//! no response.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::service::RequestContext;
use tokio_util::sync::CancellationToken;

/// Identifier of the extension.
pub(crate) const EXTENSION: &str = "io.allstop/confirmed-cancel";

/// Code of the error: the request was cancelled. The code has this meaning in the Language Server Protocol.
const CANCELLED: ErrorCode = ErrorCode(-32_800);

/// The calls of one connection on pipes whose cancellation is confirmed.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfirmedCancels(Arc<Mutex<HashMap<RequestId, CancellationToken>>>);

/// A call in the table. Dropping this value removes the call.
pub(crate) struct ConfirmedCall {
    cancels: ConfirmedCancels,
    id: RequestId,
    token: CancellationToken,
}

impl Drop for ConfirmedCall {
    fn drop(&mut self) {
        drop(self.cancels.0.lock().remove(&self.id));
    }
}

impl ConfirmedCancels {
    /// Adds a call. `None` if its client does not name the extension.
    pub(crate) fn begin(&self, context: &RequestContext<RoleServer>) -> Option<ConfirmedCall> {
        let capabilities = context.client_capabilities()?;
        let extensions = capabilities.extensions?;
        extensions.contains_key(EXTENSION).then(|| {
            let token = CancellationToken::new();
            let id = context.id.clone();
            self.0.lock().insert(id.clone(), token.clone());
            ConfirmedCall {
                cancels: self.clone(),
                id,
                token,
            }
        })
    }

    /// Cancels a call. False if the call is not in the table, so the library must handle the cancellation.
    pub(crate) fn cancel(&self, id: &RequestId) -> bool {
        let calls = self.0.lock();
        let call = calls.get(id);
        call.inspect(|token| token.cancel()).is_some()
    }
}

impl ConfirmedCall {
    pub(crate) async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }
}

/// The response to a cancelled call whose command has verifiably ended.
pub(crate) fn confirmation(text: String) -> ErrorData {
    ErrorData::new(CANCELLED, text, None)
}
