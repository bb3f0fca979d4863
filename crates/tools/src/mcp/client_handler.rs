//! Answers to the requests of an MCP server.

use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientConfig, ConstString as _, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCreateRequestMethod, ErrorCode, ErrorData,
    RequestParamsMeta as _,
};
use rmcp::service::{InboundStreamOrigin, RequestContext, RoleClient};
use tokio::sync::oneshot;

use super::calls::OpenCalls;
use super::elicitation::SentQuestion;

/// Metadata of a question that belongs to a task, since revision 2025-11-25.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

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
        let Some(call) = self.calls.asker(task_of(&params, &context), origin) else {
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

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        Err(wrong_request(request))
    }
}

/// The error for a request that the library has no type for: an unknown method, or a question of an unknown form.
fn wrong_request(request: CustomRequest) -> ErrorData {
    let CustomRequest { method, params, .. } = request;
    if method != ElicitationCreateRequestMethod::VALUE {
        return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None);
    }
    let parsed = serde_json::from_value::<ElicitRequestParams>(params.unwrap_or_default());
    let fault = parsed.err().map(|error| error.to_string());
    let fault = fault.unwrap_or_else(|| "expected an object".to_owned());
    let reason = format!(
        "wrong parameters of {method}: {fault}; the fields of a form are texts, numbers, booleans and choices, without \
         nested objects"
    );
    ErrorData::invalid_params(reason, None)
}

/// Id of the task that a question belongs to, if the server names one.
fn task_of<'a>(
    params: &'a ElicitRequestParams,
    context: &'a RequestContext<RoleClient>,
) -> Option<&'a str> {
    let of_params = params.meta().and_then(|meta| meta.get(RELATED_TASK));
    let related = of_params.or_else(|| context.meta.get(RELATED_TASK))?;
    related.get("taskId")?.as_str()
}
