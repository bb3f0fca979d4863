//! The information that a server needs before it can finish a call, since revision 2026-07-28. The client collects it,
//! and repeats the request with it.

use rmcp::model::{InputRequest, InputRequests, InputResponses};
use serde_json::json;
use tokio::time::sleep;

use super::elicitation::ask;
use super::limits::ROUND_PAUSE;
use crate::tool::{ToolError, ToolInvocation};

/// Collects the information, one question after the other.
///
/// # Cancel safety
/// Dropping the future removes the open question.
pub(super) async fn answers(
    requests: InputRequests,
    server: &str,
    invocation: &ToolInvocation,
) -> Result<InputResponses, ToolError> {
    let mut answers = InputResponses::new();
    if requests.is_empty() {
        sleep(ROUND_PAUSE).await;
    }
    for (key, request) in requests {
        let answer = match request {
            InputRequest::Elicitation(request) => {
                serde_json::to_value(ask(&request.params, server, invocation).await)
            }
            // The client has no folders for servers.
            InputRequest::ListRoots(_) => Ok(json!({"roots": []})),
            _ => {
                return Err(ToolError::new(format!(
                    "the server `{server}` asked for the answer of a model, which Allstop does not offer; the call was \
                     given up"
                )));
            }
        };
        let answer = answer.map_err(|error| ToolError::new(error.to_string()))?;
        answers.insert(key, answer);
    }
    Ok(answers)
}
