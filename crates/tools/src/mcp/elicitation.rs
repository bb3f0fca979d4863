//! Questions of MCP servers to a person, in the form of the protocol.
//!
//! A server asks during a call: with an answer that requires input (since revision 2026-07-28), or with a
//! separate request. The call itself asks the person, so a stop of the call also ends the question.

use std::convert::Infallible;
use std::time::Duration;

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::interval;

use crate::permission::Denial;
use crate::server_question::{
    FORM_FIELDS_MAX, FormAnswer, FormField, ServerQuestion, WantedInput, shortened,
};
use crate::tool::ToolInvocation;

/// Maximum number of questions of one call that wait for their turn. A person answers one question at a time.
pub(super) const QUESTIONS_WAITING_MAX: usize = 4;

/// Interval of the heartbeats of a call while a person thinks about a question, so that the call does not count as
/// inactive. Limits of inactivity are longer.
const THINKING_HEARTBEAT: Duration = Duration::from_secs(1);

/// Question that a server has sent as a separate request.
#[derive(Debug)]
pub(super) struct SentQuestion {
    pub(super) params: ElicitRequestParams,
    pub(super) answer: oneshot::Sender<ElicitResult>,
}

/// Asks the questions of one call, one after the other, until the end of the call.
pub(super) async fn ask_all(
    mut sent: mpsc::Receiver<SentQuestion>,
    server: &str,
    invocation: &ToolInvocation,
) -> Infallible {
    while let Some(SentQuestion { params, answer }) = sent.recv().await {
        let result = ask(&params, server, invocation).await;
        // Fails only if the server has withdrawn its question.
        drop(answer.send(result));
    }
    // The call has left the table, and its answer follows.
    std::future::pending().await
}

/// Asks one question.
///
/// # Cancel safety
/// Dropping the future removes the question.
pub(super) async fn ask(
    params: &ElicitRequestParams,
    server: &str,
    invocation: &ToolInvocation,
) -> ElicitResult {
    let question = match question(params, server, invocation) {
        Ok(question) => question,
        Err(why) => return refused(server, &why, invocation),
    };
    let wanted = question.wanted.clone();
    let Some(prompter) = invocation.link.prompter() else {
        return refused(server, NO_PERSON, invocation);
    };
    let asking = prompter.answer_server(question);
    let answer = tokio::select! {
        answer = asking => answer,
        never = heartbeats(invocation) => match never {},
    };
    match answer {
        FormAnswer::Accept(values) => match wanted.completed(values) {
            Ok(values) => {
                let accepted = ElicitResult::new(ElicitationAction::Accept);
                match wanted {
                    WantedInput::Form(_) => accepted.with_content(Value::Object(values)),
                    WantedInput::Url(_) => accepted,
                }
            }
            Err(why) => refused(server, &why, invocation),
        },
        FormAnswer::Decline => ElicitResult::new(ElicitationAction::Decline),
        FormAnswer::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        FormAnswer::Unanswered => refused(server, NO_PERSON, invocation),
    }
}

const NO_PERSON: &str =
    "no terminal or client to ask; `allstop chat` at a terminal shows the question";

/// Refuses a question that no person has seen, and lists it.
fn refused(server: &str, why: &str, invocation: &ToolInvocation) -> ElicitResult {
    invocation.link.denied(Denial {
        call_id: invocation.call_id.clone(),
        tool: invocation.name.clone(),
        reason: format!("a question of the server `{server}` was declined: {why}"),
    });
    ElicitResult::new(ElicitationAction::Decline)
}

#[expect(
    clippy::infinite_loop,
    reason = "whoever polls it drops it with the question"
)]
async fn heartbeats(invocation: &ToolInvocation) -> Infallible {
    let mut beats = interval(THINKING_HEARTBEAT);
    loop {
        beats.tick().await;
        invocation.link.heartbeat();
    }
}

fn question(
    params: &ElicitRequestParams,
    server: &str,
    invocation: &ToolInvocation,
) -> Result<ServerQuestion, String> {
    let (message, wanted) = match params {
        ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } => {
            let schema = serde_json::to_value(requested_schema).unwrap_or_default();
            let mut fields = fields(&schema)?;
            // The order of the server has a meaning for people, and the JSON object does not keep it.
            if let Some(order) = &requested_schema.property_order {
                fields.sort_by_key(|field| order.iter().position(|name| *name == field.name));
            }
            (message, WantedInput::Form(fields))
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            if !is_usable_address(url) {
                return Err("its page has no usable address".to_owned());
            }
            (message, WantedInput::Url(url.as_str().into()))
        }
        _ => return Err("it has an unknown form".to_owned()),
    };
    Ok(ServerQuestion {
        session_id: invocation.session_id.clone(),
        call_id: invocation.call_id.clone(),
        server: server.into(),
        message: shortened(message).into(),
        wanted,
    })
}

/// True if a person can open this address in a browser.
pub(super) fn is_usable_address(url: &str) -> bool {
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    is_web && url.len() <= shortened(url).len()
}

/// Reads the fields of a form from its JSON schema.
pub(super) fn fields(schema: &Value) -> Result<Vec<FormField>, String> {
    let names = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| names.is_some_and(|names| names.iter().any(|one| one == name));
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.ok_or("its form has no fields")?;
    if properties.len() > FORM_FIELDS_MAX {
        return Err(format!("its form has more than {FORM_FIELDS_MAX} fields"));
    }
    let mut fields = Vec::new();
    for (name, schema) in properties {
        match FormField::of(name, schema, is_required(name)) {
            Some(field) => fields.push(field),
            None if is_required(name) => {
                return Err(format!(
                    "its form needs a value that cannot be typed: `{name}`"
                ));
            }
            None => {}
        }
    }
    Ok(fields)
}
