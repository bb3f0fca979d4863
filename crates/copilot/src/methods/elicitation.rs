//! Answers of clients to the questions of MCP servers.

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
    result: ElicitationReply,
}

#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "lowercase")]
enum ElicitationReply {
    Accept { content: Option<Map<String, Value>> },
    Decline,
    Cancel,
}

/// Answers the question of a server. Reports whether the answer counted, and returns no error for a closed question. After
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
    let (session, id) = (&hosted.session, QuestionId::new(params.request_id));
    let open = session.server_questions();
    let Some(open) = open.into_iter().find(|open| open.id == id) else {
        return success(false);
    };
    let answer = match params.result {
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
