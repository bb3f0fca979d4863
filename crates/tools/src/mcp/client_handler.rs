//! Answers to the requests of an MCP server.

use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData};
use rmcp::service::{InboundStreamOrigin, RequestContext, RoleClient};
use tokio::sync::oneshot;

use super::calls::OpenCalls;
use super::elicitation::SentQuestion;

/// Handler of one connection. Questions go to the call that they belong to; a question without a call is dismissed.
#[derive(Debug)]
pub(super) struct McpClientHandler {
    pub(super) config: ClientConfig,
    pub(super) calls: Arc<OpenCalls>,
}

impl ClientHandler for McpClientHandler {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let origin = match context.extensions.get::<InboundStreamOrigin>() {
            Some(InboundStreamOrigin::OutboundRequest(id)) => Some(id),
            _ => None,
        };
        let cancelled = ElicitResult::new(ElicitationAction::Cancel);
        let Some(call) = self.calls.asker(origin) else {
            return Ok(cancelled);
        };
        let (answer, answered) = oneshot::channel();
        // Full only if the server asks many questions at once.
        if call.try_send(SentQuestion { params, answer }).is_err() {
            return Ok(cancelled);
        }
        tokio::select! {
            answered = answered => Ok(answered.unwrap_or(cancelled)),
            () = context.ct.cancelled() => Ok(cancelled),
        }
    }
}
