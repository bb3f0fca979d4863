//! Requests for the hooks of a client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use allstop_agent::HookCx;
use allstop_core::SessionId;
use allstop_core::receipt::ItemKind;
use allstop_scope::WorkSpec;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use super::output::HookOutput;
use crate::connection::ClientRequestError;
use crate::hosted::attached_clients::{AttachedClient, AttachedClients};
use crate::hosted::client_work::ClientWork;
use crate::translate::HostEvent;

/// Sends requests for hooks to a client of the session.
#[derive(Debug, Clone)]
pub(crate) struct HookRequests {
    pub(crate) session_id: SessionId,
    pub(crate) attached_clients: Arc<AttachedClients>,
    pub(crate) folder: PathBuf,
    /// Channel for warnings to the clients about unsupported parts of a hook's answer.
    pub(crate) host_events: broadcast::Sender<HostEvent>,
}

/// Reason why a hook has no output.
#[derive(Debug)]
pub(super) enum HookRequestError {
    /// A stop came before the request.
    Stopped,
    /// The client sent no valid answer.
    NoAnswer(ClientRequestError),
}

#[derive(Deserialize)]
struct HookAnswer {
    output: Option<HookOutput>,
}

impl HookRequests {
    /// Returns the client whose hooks are called: the client that attached last among the clients with hooks.
    pub(super) fn client(&self) -> Option<AttachedClient> {
        self.attached_clients
            .latest(|client_options| client_options.hooks)
    }

    /// True if the event belongs to the session, and false if it belongs to a sub-agent.
    pub(super) fn is_of_session(&self, cx: &HookCx) -> bool {
        cx.session_id == self.session_id
    }

    /// Calls a hook of the client, and returns its output.
    ///
    /// # Errors
    /// Returns an error if a stop came before the request, or if the client sent no valid answer.
    ///
    /// # Cancel safety
    /// If the future is dropped, the receipt of the stop reports that the handler may still run.
    pub(super) async fn call(
        &self,
        client: &AttachedClient,
        cx: &HookCx,
        hook: &'static str,
        input: Value,
    ) -> Result<HookOutput, HookRequestError> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = at.map_or(0, |since| since.as_millis() as u64);
        let mut all = Map::from_iter([
            ("sessionId".to_owned(), cx.session_id.as_str().into()),
            ("timestamp".to_owned(), at.into()),
            ("cwd".to_owned(), self.folder.to_string_lossy().into()),
        ]);
        if let Value::Object(input) = input {
            all.extend(input);
        }
        let params = json!({ "sessionId": self.session_id, "hookType": hook, "input": all });
        // The handler runs in the client. A stop cannot end the handler, and the protocol does not report the end of the
        // handler.
        let work = WorkSpec::new(ItemKind::Remote, format!("hook {hook} of the client"));
        let handler = ClientWork::register(&cx.scope, work);
        let handler = handler.map_err(|_stopped| HookRequestError::Stopped)?;
        let answer = client.request::<HookAnswer>("hooks.invoke", &params).await;
        handler.answered();
        let answer = answer.map_err(HookRequestError::NoAnswer)?;
        let output = answer.output.unwrap_or_default();
        for part in output.not_offered() {
            let message = format!("`{part}` of the hook {hook} is not offered").into();
            // If no client is attached, the warning is not needed.
            drop(self.host_events.send(HostEvent::NotOffered { message }));
        }
        Ok(output)
    }
}
