//! `session.fleet.start`: a message that has the model divide its work between sub-agents.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::messages;
use super::method::{MethodAnswer, MethodCx, open_session, read, ready};

/// Instruction before the request of the user.
const INSTRUCTION: &str = "Divide this work between agents. Find the parts that do not depend on each other, and start one \
    agent for each part with the tool `task`, all of them in one step. Do a part yourself if it is too small for an agent. \
    Check the results before you answer.";

/// Request of the user in a message without one.
const CURRENT_WORK: &str = "Carry out the plan of this conversation.";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FleetParams {
    session_id: String,
    prompt: Option<String>,
}

pub(super) fn start(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: FleetParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    if !session.tools.has_sub_agents() {
        let message = "the session has no tool `task`, which starts agents";
        return Err(RpcError::invalid_params(message));
    }
    let request = params.prompt.filter(|prompt| !prompt.is_empty());
    let request = request.as_deref().unwrap_or(CURRENT_WORK);
    messages::send_text(cx, session, format!("{INSTRUCTION}\n\nRequest: {request}"))?;
    ready(json!({ "started": true }))
}
