//! `session.skills.*`: skills in the folders that a client names.

use std::collections::BTreeMap;

use allstop_jsonrpc::RpcError;
use allstop_tools::names;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::lifecycle::events_of;
use super::method::{
    MethodAnswer, MethodCx, MethodResult, large, later, open_session, read, ready,
};
use super::open::reopen;
use crate::hosted::{HostedSession, SessionChoice};
use crate::server::CopilotServer;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SkillParams {
    session_id: String,
    name: Option<String>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: SkillParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let server = cx.server.clone();
    match method {
        "session.skills.list" => ready(json!({ "skills": infos_of(&session) })),
        // The skills are read when the session opens.
        "session.skills.ensureLoaded" => ready(json!({})),
        "session.skills.getInvoked" => Ok(large(async move {
            Ok(json!({ "skills": invoked(&server, &session).await? }))
        })),
        "session.skills.reload" => Ok(later(async move {
            let session = reopen(server, session.id().clone(), "skills", |_| Ok(())).await?;
            let data = json!({ "skills": infos_of(&session) });
            session.send_ephemeral("session.skills_loaded", data);
            Ok(json!({ "warnings": session.skills.problems, "errors": [] }))
        })),
        "session.skills.enable" | "session.skills.disable" => {
            let name = params.name.unwrap_or_default();
            if !session.skills.skills.contains_key(&name) {
                return Err(RpcError::invalid_params(format!("unknown skill {name:?}")));
            }
            let is_enabled = method == "session.skills.enable";
            Ok(later(async move {
                switch(server, &session, name, is_enabled).await
            }))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

async fn switch(
    server: CopilotServer,
    session: &HostedSession,
    name: String,
    is_enabled: bool,
) -> MethodResult {
    let change = move |choice: &mut SessionChoice| {
        let disabled = &mut choice.parts.disabled_skills;
        if is_enabled {
            disabled.remove(&name);
        } else {
            disabled.insert(name);
        }
        Ok(())
    };
    reopen(server, session.id().clone(), "skills", change).await?;
    Ok(json!({}))
}

/// Describes the skills of a session.
fn infos_of(session: &HostedSession) -> Vec<Value> {
    let parts = session.choice().parts;
    let is_of_plugin = |path: &std::path::Path| {
        let mut plugins = parts.plugins.iter();
        plugins.any(|one| path.starts_with(&one.plugin.root))
    };
    let is_named = |path: &std::path::Path| {
        let mut folders = parts.skill_folders.iter();
        folders.any(|folder| path.starts_with(folder))
    };
    let source = |path: &std::path::Path| match path {
        path if is_named(path) => "custom",
        path if is_of_plugin(path) => "plugin",
        _ => "project",
    };
    let skills = session.skills.skills.values();
    let infos = skills.map(|skill| {
        json!({
            "name": skill.name,
            "description": skill.description,
            "source": source(&skill.path),
            "userInvocable": true,
            "enabled": !parts.disabled_skills.contains(&skill.name),
            "path": skill.path,
        })
    });
    infos.collect()
}

/// Returns the skills that the model has loaded, each with its first turn.
async fn invoked(server: &CopilotServer, session: &HostedSession) -> Result<Vec<Value>, RpcError> {
    let events = events_of(server, session).await?;
    let (mut turn, mut loaded) = (0, BTreeMap::new());
    for event in &events {
        match event.kind {
            "user.message" => turn += 1,
            "tool.execution_start" if event.data["toolName"] == names::SKILL => {
                let name = event.data["arguments"]["name"].as_str().unwrap_or_default();
                loaded.entry(name).or_insert(turn);
            }
            _ => {}
        }
    }
    let known = loaded.into_iter().filter_map(|(name, turn)| {
        let skill = session.skills.skills.get(name)?;
        Some(json!({
            "name": name,
            "path": skill.path,
            "content": skill.instructions(),
            "invokedAtTurn": turn,
        }))
    });
    Ok(known.collect())
}
