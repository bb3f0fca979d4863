//! `session.ui.ephemeralQuery`: a question to the model outside the conversation.

use std::sync::Arc;

use allstop_agent::PlainAnswerError;
use allstop_jsonrpc::RpcError;
use allstop_session::SideQuestionError;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx, failed, later, open_session, read};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QuestionParams {
    session_id: String,
    question: Arc<str>,
}

/// Asks the model, and reports the beginning and the end to the clients.
pub(super) fn ask(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: QuestionParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    // Registered at once, so that a later stop covers the question.
    let asking = session.session.ask_aside(params.question);
    Ok(later(async move {
        let id = ulid::Ulid::generate().to_string();
        let report = |phase: &str, more: Option<(&str, &str)>| {
            let mut data = json!({ "requestId": id, "phase": phase });
            if let Some((name, text)) = more {
                data[name] = text.into();
            }
            session.send_ephemeral("ui.ephemeral_query", data);
        };
        report("started", None);
        match asking.await {
            Ok(answer) => {
                report("completed", Some(("answer", &answer)));
                Ok(json!({ "answer": answer }))
            }
            Err(error) => {
                let text = error.to_string();
                match &error {
                    SideQuestionError::NoAnswer(PlainAnswerError::Stopped(_)) => {
                        report("aborted", None);
                    }
                    _ => report("failed", Some(("error", &text))),
                }
                Err(match error {
                    SideQuestionError::Busy => RpcError::overloaded(text),
                    error => failed(&error),
                })
            }
        }
    }))
}
