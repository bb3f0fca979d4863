//! Settings and states of a session for clients.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, open_session, read};
use super::stops::runs_attached_background;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SettingsParams {
    session_id: String,
    installed_plugins: Option<Vec<Value>>,
    included_builtin_skills: Option<Vec<Value>>,
    manage_schedule_enabled: Option<bool>,
}

const METHODS: [&str; 6] = [
    "session.options.update",
    "session.telemetry.getEngagementId",
    "session.mode.get",
    "session.model.getCurrent",
    "session.metadata.isProcessing",
    "session.metadata.activity",
];

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    if !METHODS.contains(&method) {
        return Err(RpcError::method_not_found(method));
    }
    let params: SettingsParams = read(params)?;
    let hosted = open_session(cx, &params.session_id)?;
    let session = &hosted.session;
    let has_background = || session.background().iter().any(|work| work.is_running());
    let answer = match method {
        "session.options.update" => {
            check(&params)?;
            json!({ "success": true })
        }
        // The server sends no telemetry.
        "session.telemetry.getEngagementId" => json!({}),
        "session.mode.get" => json!("interactive"),
        "session.model.getCurrent" => json!({ "modelId": hosted.model_name() }),
        "session.metadata.isProcessing" => json!({ "processing": session.is_busy() }),
        _ => json!({
            "abortable": session.is_busy() || runs_attached_background(session),
            "hasActiveWork": session.is_busy() || has_background(),
        }),
    };
    Ok(MethodAnswer::Now(Ok(answer)))
}

/// Refuses options that this server does not offer. The other options only disable parts that a session never has.
fn check(params: &SettingsParams) -> Result<(), RpcError> {
    let is_given = |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|list| !list.is_empty());
    for (name, is_asked) in [
        ("installedPlugins", is_given(&params.installed_plugins)),
        (
            "includedBuiltinSkills",
            is_given(&params.included_builtin_skills),
        ),
        (
            "manageScheduleEnabled",
            params.manage_schedule_enabled == Some(true),
        ),
    ] {
        if is_asked {
            return Err(RpcError::invalid_params(format!(
                "`{name}` is not offered: leave it out"
            )));
        }
    }
    Ok(())
}
