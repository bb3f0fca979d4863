//! `session.agent.*`: the agents that a client defines, and the selected agent.

use std::sync::Arc;

use allstop_jsonrpc::RpcError;
use allstop_runtime::System;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx, later, open_session, read, ready};
use super::open::reopen;
use crate::client_parts::ClientParts;
use crate::hosted::SessionChoice;
use crate::sub_agent_settings::SubAgentSettings;
use crate::translate::HostEvent;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AgentParams {
    session_id: String,
    name: Option<String>,
    #[serde(default)]
    include_prompt: bool,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: AgentParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let (server, id) = (cx.server.clone(), session.id().clone());
    let parts = session.choice().parts;
    match method {
        // The agents come with the requests of the clients, so a reload finds the known agents.
        "session.agent.list" | "session.agent.reload" => {
            let agents = parts.all_agents();
            let infos = agents.map(|agent| agent.info(params.include_prompt));
            ready(json!({ "agents": infos.collect::<Vec<_>>() }))
        }
        "session.agent.getCurrent" => {
            let current = parts.selected();
            ready(json!({ "agent": current.map(|agent| agent.info(false)) }))
        }
        "session.agent.select" => {
            let name = params.name.unwrap_or_default();
            let mut agents = parts.all_agents();
            let Some(agent) = agents.find(|agent| agent.name == name).cloned() else {
                return Err(RpcError::invalid_params(format!("unknown agent {name:?}")));
            };
            Ok(later(async move {
                let change = select(Some(agent.name.clone()));
                let session = reopen(server, id, "agent", change).await?;
                let data = json!({
                    "agentName": agent.name,
                    "agentDisplayName": agent.display_name.as_ref().unwrap_or(&agent.name),
                    "tools": agent.tools,
                });
                session.note("subagent.selected", data);
                Ok(json!({ "agent": agent.info(false) }))
            }))
        }
        "session.agent.deselect" => Ok(later(async move {
            if parts.agent.is_some() {
                let session = reopen(server, id, "agent", select(None)).await?;
                session.note("subagent.deselected", json!({}));
            }
            Ok(json!({}))
        })),
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubAgentParams {
    session_id: String,
    subagents: Option<SubAgentSettings>,
}

/// `session.tools.updateSubagentSettings`: replaces the settings of the sub-agents. Without new settings, removes them.
pub(super) fn update_sub_agents(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: SubAgentParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let settings = params.subagents.unwrap_or_default();
    let server = cx.server.clone();
    let system = Arc::clone(server.system());
    let ignored = settings.ignored();
    let unknown = unknown_name(settings.disabled(), &session.choice(), &system);
    let change = move |choice: &mut SessionChoice| {
        if let Some(name) = unknown_name(settings.changed(), choice, &system) {
            return Err(RpcError::invalid_params(format!("unknown agent {name:?}")));
        }
        choice.parts.sub_agent_settings = settings;
        Ok(())
    };
    Ok(later(async move {
        let session = reopen(server, session.id().clone(), "subagents", change).await?;
        session.warn_of_ignored("session.tools.updateSubagentSettings", &ignored);
        if let Some(name) = unknown {
            let message = format!("`disabledSubagents` names the unknown agent {name:?}").into();
            session.send_host_event(HostEvent::NotOffered { message });
        }
        Ok(json!({}))
    }))
}

/// Returns the first of these names that no sub-agent of the session has.
fn unknown_name<'a>(
    mut names: impl Iterator<Item = &'a String>,
    choice: &SessionChoice,
    system: &System,
) -> Option<String> {
    let parts = ClientParts {
        // The settings remove agents from the list.
        sub_agent_settings: SubAgentSettings::default(),
        ..choice.parts.clone()
    };
    let kinds = parts.kinds(system, &choice.providers);
    let unknown = names.find(|name| kinds.iter().all(|kind| *kind.name != ***name));
    unknown.cloned()
}

/// Returns a change of the selected agent.
fn select(
    name: Option<String>,
) -> impl FnOnce(&mut SessionChoice) -> Result<(), RpcError> + Send + 'static {
    move |choice| {
        let further = &mut choice.requested.further;
        match &name {
            Some(name) => further.insert("agent", json!(name)),
            None => further.remove("agent"),
        };
        choice.parts.agent = name;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::client_parts::ClientAgent;

    #[test]
    fn agent_has_an_id_and_a_display_name() {
        let agent: ClientAgent =
            serde_json::from_value(json!({ "name": "a", "prompt": "p", "tools": ["*"] }))
                .expect("an agent");
        let info: Value = agent.info(false);
        assert_eq!(
            (&info["id"], &info["displayName"]),
            (&json!("a"), &json!("a"))
        );
        assert_eq!(agent.chosen_tools(), None);
        assert!(info.get("prompt").is_none());
    }
}
