//! `session.ui.handlePendingElicitation`: answers of clients to forms, and to the questions of MCP servers.

use allstop_core::ids::QuestionId;
use allstop_jsonrpc::RpcError;
use allstop_session::AnswerResult;
use allstop_tools::FormAnswer;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::method::{MethodAnswer, MethodCx, open_session, read};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ElicitationParams {
    session_id: String,
    request_id: String,
    result: Value,
}

#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "lowercase")]
enum ElicitationReply {
    Accept { content: Option<Map<String, Value>> },
    Decline,
    Cancel,
}

/// Answers a form of a client, or the question of a server. Reports whether the answer counted, and returns no error for a closed question. After
/// an answer with invalid values, the question stays open.
pub(super) fn answer(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: ElicitationParams = read(params)?;
    let success = |is_taken: bool| Ok(MethodAnswer::Now(Ok(json!({ "success": is_taken }))));
    let Ok(hosted) = open_session(cx, &params.session_id) else {
        return success(false);
    };
    if hosted
        .pending
        .answer(&params.request_id, params.result.clone())
    {
        return success(true);
    }
    let (session, id) = (&hosted.session, QuestionId::new(params.request_id));
    let open = session.server_questions();
    let Some(open) = open.into_iter().find(|open| open.id == id) else {
        return success(false);
    };
    let reply = serde_json::from_value(params.result)
        .map_err(|error| RpcError::invalid_params(format!("`result` is not valid: {error}")))?;
    let answer = match reply {
        ElicitationReply::Accept { content } => {
            let values = open.question.wanted.completed(content.unwrap_or_default());
            FormAnswer::Accept(values.map_err(|why| {
                RpcError::invalid_params(format!("the answer is not valid: {why}"))
            })?)
        }
        ElicitationReply::Decline => FormAnswer::Decline,
        ElicitationReply::Cancel => FormAnswer::Cancel,
    };
    success(session.answer_server(&id, answer) == AnswerResult::Taken)
}
