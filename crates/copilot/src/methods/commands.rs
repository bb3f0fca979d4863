//! `session.commands.*`: slash commands of the clients and of the server.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, failed, later, open_session, read, ready};
use crate::hosted::{COMPACT, HostedSession};

/// Command of the server that names the model of the session.
const MODEL: &str = "model";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommandParams {
    session_id: String,
    name: Option<String>,
    command_name: Option<String>,
    args: Option<String>,
    command: Option<String>,
    request_id: Option<String>,
    result: Option<Value>,
    error: Option<String>,
    include_builtins: Option<bool>,
    include_skills: Option<bool>,
    include_client_commands: Option<bool>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: CommandParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    match method {
        "session.commands.list" => ready(json!({ "commands": listed(&session, &params) })),
        "session.commands.execute" => {
            let name = params.command_name.unwrap_or_default();
            let args = params.args.unwrap_or_default();
            Ok(later(async move {
                Ok(session.execute_command(&name, &args).await)
            }))
        }
        "session.commands.handlePendingCommand" => {
            let id = params.request_id.unwrap_or_default();
            let answer = params.error.map_or(Value::Null, Value::String);
            // A late answer has no effect, and a program would repeat its answer after an error.
            let _first_or_late = session.pending.answer(&id, answer);
            ready(json!({ "success": true }))
        }
        "session.commands.respondToQueuedCommand" => {
            let id = params.request_id.unwrap_or_default();
            let result = params.result.unwrap_or_default();
            ready(json!({ "success": session.pending.answer(&id, result) }))
        }
        "session.commands.invoke" if params.name.as_deref() == Some(COMPACT) => {
            Ok(later(async move {
                let message = match session.session.compact().await {
                    Ok(done) => format!("{} messages replaced by a summary", done.messages_dropped),
                    Err(allstop_session::CompactError::TooShort(_)) => {
                        "nothing to compact".to_owned()
                    }
                    Err(error) => return Err(failed(&error)),
                };
                Ok(json!({ "kind": "completed", "message": message }))
            }))
        }
        "session.commands.invoke" if params.name.as_deref() == Some(MODEL) => {
            let name = session.model_name();
            let name = name.map_or("not chosen yet", |name| &**name);
            ready(json!({ "kind": "text", "text": format!("model: {name}") }))
        }
        "session.commands.invoke" => Err(RpcError::invalid_params(format!(
            "unknown command {:?}: the server has the commands {COMPACT:?} and {MODEL:?}",
            params.name.unwrap_or_default()
        ))),
        "session.commands.enqueue" => {
            session.enqueue_command(params.command.unwrap_or_default())?;
            ready(json!({ "queued": true }))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

fn listed(session: &HostedSession, params: &CommandParams) -> Vec<Value> {
    let info = |name: &str, description: &str, kind: &str| {
        json!({
            "name": name,
            "description": description,
            "kind": kind,
            "allowDuringAgentExecution": kind == "client",
        })
    };
    let mut all = Vec::new();
    if params.include_builtins != Some(false) {
        let description = "Replaces the oldest turns of the conversation by a summary";
        all.push(info(COMPACT, description, "builtin"));
        all.push(info(MODEL, "Names the model of the session", "builtin"));
    }
    if params.include_client_commands != Some(false) {
        let commands = session.client_commands();
        all.extend(commands.iter().map(|command| {
            let text = |name: &str| command[name].as_str().unwrap_or_default().to_owned();
            info(&text("name"), &text("description"), "client")
        }));
    }
    if params.include_skills != Some(false) {
        let parts = session.choice().parts;
        let enabled = parts.enabled(&session.skills);
        let skills = enabled.values();
        all.extend(skills.map(|skill| info(&skill.name, &skill.description, "skill")));
    }
    all
}
