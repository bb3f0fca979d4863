//! `session.options.update`, and the telemetry of a session.

use std::path::PathBuf;

use allstop_jsonrpc::RpcError;
use allstop_model::ReasoningEffort;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::method::{MethodAnswer, MethodCx, later, open_session, read, ready};
use super::open::reopen;
use super::open_checks::check_folder;
use crate::hosted::{SessionChoice, SessionLimits};
use crate::refusal::check_optional_text;
use crate::server::CopilotServer;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SettingsParams {
    session_id: String,
    installed_plugins: Option<Vec<Value>>,
    included_builtin_skills: Option<Vec<Value>>,
    manage_schedule_enabled: Option<bool>,
    #[serde(flatten)]
    changes: SettingChanges,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Options that the open session changes.
#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SettingChanges {
    model: Option<String>,
    reasoning_effort: Option<ReasoningEffort>,
    working_directory: Option<PathBuf>,
    available_tools: Option<Vec<String>>,
    excluded_tools: Option<Vec<String>>,
    /// Null removes the limits.
    #[serde(deserialize_with = "present")]
    session_limits: Option<LimitsChange>,
}

/// New limits; `None` removes the limits.
#[derive(Clone, Copy, PartialEq, Deserialize)]
struct LimitsChange(Option<SessionLimits>);

/// Reads a value that is present, also null.
fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: SettingsParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let server = cx.server.clone();
    match method {
        "session.options.update" => {
            check(&params)?;
            session.warn_of_ignored(method, &params.others);
            let changes = params.changes;
            if changes == SettingChanges::default() {
                return ready(json!({ "success": true }));
            }
            check_optional_text("model", changes.model.as_deref())?;
            let folder = changes.working_directory.clone();
            let (of_server, limits) = (server.clone(), changes.session_limits);
            let change = move |choice: &mut SessionChoice| changes.apply(&of_server, choice);
            Ok(later(async move {
                check_folder(folder.as_deref()).await?;
                let session = reopen(server, session.id().clone(), "options", change).await?;
                if let Some(LimitsChange(limits)) = limits {
                    let data = json!({ "sessionLimits": limits });
                    session.note("session.session_limits_changed", data);
                }
                Ok(json!({ "success": true }))
            }))
        }
        // The server sends no telemetry, so it has no features to override.
        "session.telemetry.getEngagementId" => ready(json!({})),
        "session.telemetry.setFeatureOverrides" => ready(Value::Null),
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

impl SettingChanges {
    fn apply(self, server: &CopilotServer, choice: &mut SessionChoice) -> Result<(), RpcError> {
        if let Some(name) = self.model {
            let chosen = choice.providers.model(server.system(), Some(&name))?;
            (choice.model, choice.model_name) = (chosen.model, Some(chosen.name));
        }
        if let Some(effort) = self.reasoning_effort {
            choice.reasoning_effort = Some(effort);
        }
        if let Some(LimitsChange(limits)) = self.session_limits {
            choice.limits = limits.unwrap_or_default();
            let further = &mut choice.requested.further;
            further.insert("sessionLimits", json!(choice.limits));
        }
        if let Some(folder) = self.working_directory {
            choice.folder = Some(folder);
        }
        if let Some(available) = self.available_tools {
            choice.filter.available = Some(available);
        }
        if let Some(excluded) = self.excluded_tools {
            choice.filter.excluded = excluded;
        }
        Ok(())
    }
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
