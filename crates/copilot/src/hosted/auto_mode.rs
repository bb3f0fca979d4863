//! State of the questions about the switch to the auto model.

use std::collections::HashMap;

use allstop_jsonrpc::RpcError;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::attached_clients::{AttachedClient, AttachedClients};
use super::unanswered_requests::UnansweredRequests;
use crate::connection::ClientId;

/// Maximum number of handlers that the clients of a session register to answer the event of a question. A client needs one.
const DIRECT_HANDLERS_MAX: usize = 64;

/// Answer to the question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SwitchConsent {
    Yes,
    /// No later question in the open session. A switch lasts as long as the session is open, so this has the effect of
    /// `Yes`.
    YesAlways,
    #[default]
    No,
}

/// Open questions, and the handlers that answer their events.
#[derive(Debug, Default)]
pub(crate) struct AutoModeQuestions {
    pub(crate) open: UnansweredRequests<SwitchConsent>,
    /// Handles of the handlers, and the clients that have registered them.
    direct: Mutex<HashMap<String, ClientId>>,
}

impl AutoModeQuestions {
    /// Registers a handler, and returns its handle.
    ///
    /// # Errors
    /// Returns an error if the clients have too many handlers.
    pub(crate) fn register(&self, client: ClientId) -> Result<String, RpcError> {
        let mut direct = self.direct.lock();
        if direct.len() >= DIRECT_HANDLERS_MAX {
            return Err(RpcError::overloaded(format!(
                "the session has {DIRECT_HANDLERS_MAX} handlers for the switch to the auto model: unregister one"
            )));
        }
        let handle = ulid::Ulid::generate().to_string();
        direct.insert(handle.clone(), client);
        Ok(handle)
    }

    /// Removes a handler. Returns false if the handle is unknown.
    pub(crate) fn unregister(&self, handle: &str) -> bool {
        self.direct.lock().remove(handle).is_some()
    }

    /// Returns the attached clients with a handler. Removes the handlers of the other clients.
    pub(super) fn with_handler(&self, clients: &AttachedClients) -> Vec<AttachedClient> {
        let mut direct = self.direct.lock();
        direct.retain(|_, client| clients.get(*client).is_some());
        let clients = direct.values().filter_map(|client| clients.get(*client));
        clients.collect()
    }
}
