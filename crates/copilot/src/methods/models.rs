//! `session.model.*` and `session.provider.add`: the model of a session, which changes between two turns.

use std::sync::Arc;

use allstop_core::SessionId;
use allstop_jsonrpc::RpcError;
use allstop_model::ReasoningEffort;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::info::{context_window, model_info};
use super::method::{MethodAnswer, MethodCx, MethodResult, later, open_session, read, ready};
use super::model_capabilities::ModelCapabilities;
use super::open::reopen;
use crate::hosted::{HostedSession, SessionChoice};
use crate::provider::{ListedModelParams, NamedProviderParams};
use crate::refusal::check_text;
use crate::server::CopilotServer;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ModelParams {
    session_id: String,
    model_id: Option<String>,
    reasoning_effort: Option<ReasoningEffort>,
    model_capabilities: Option<ModelCapabilities>,
    #[serde(default)]
    providers: Vec<NamedProviderParams>,
    #[serde(default)]
    models: Vec<ListedModelParams>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: ModelParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let server = cx.server.clone();
    match method {
        "session.model.getCurrent" => ready(without_nulls(json!({
            "modelId": session.model_name(),
            "reasoningEffort": session.reasoning_effort(),
        }))),
        "session.model.list" => {
            let list = listed(cx.server, &session);
            ready(json!({ "list": list }))
        }
        "session.model.switchTo" => {
            let name = params.model_id;
            let name = name.ok_or_else(|| RpcError::invalid_params("`modelId` is missing"))?;
            check_text("modelId", &name)?;
            let change = ModelChange {
                name: Some(name),
                effort: params.reasoning_effort,
                capabilities: params.model_capabilities,
            };
            Ok(later(async move {
                let session = change.apply(server, session).await?;
                Ok(json!({ "modelId": session.model_name() }))
            }))
        }
        "session.model.setReasoningEffort" => {
            let effort = params.reasoning_effort;
            let effort =
                effort.ok_or_else(|| RpcError::invalid_params("`reasoningEffort` is missing"))?;
            let change = ModelChange {
                name: None,
                effort: Some(effort),
                capabilities: None,
            };
            Ok(later(async move {
                change.apply(server, session).await?;
                Ok(json!({ "reasoningEffort": effort }))
            }))
        }
        "session.provider.getEndpoint" => {
            let choice = session.choice();
            let model = params.model_id.as_deref();
            let model = model.or(session.model_name().map(|name| &**name));
            let endpoint = choice.providers.endpoint(model);
            ready(endpoint.ok_or_else(|| {
                let message =
                    "the session uses the provider of the server, whose key no client receives";
                RpcError::invalid_params(message)
            })?)
        }
        "session.provider.add" => {
            let (providers, models) = (params.providers, params.models);
            let id = session.id().clone();
            Ok(later(add_providers(server, id, providers, models)))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

/// Describes the models that a session can use: its model, the configured model, and the models in its list.
fn listed(server: &CopilotServer, session: &HostedSession) -> Vec<Value> {
    let window = context_window(server);
    let mut names: Vec<Arc<str>> = session.model_name().into_iter().cloned().collect();
    let configured = server.system().model_name();
    if server.system().has_model() && names.iter().all(|name| **name != *configured) {
        names.push(configured.into());
    }
    let choice = session.choice();
    let of_list: Vec<(String, &str)> = choice.providers.listed_models().collect();
    names.retain(|name| of_list.iter().all(|(listed, _)| **name != **listed));
    let own = names.iter().map(|name| model_info(name, window));
    let of_list = of_list.iter().map(|(id, name)| {
        let mut info = model_info(id, window);
        info["name"] = (*name).into();
        info
    });
    own.chain(of_list).collect()
}

/// A change of the model, or of the effort of its reasoning.
struct ModelChange {
    /// `None` for the current model.
    name: Option<String>,
    effort: Option<ReasoningEffort>,
    capabilities: Option<ModelCapabilities>,
}

impl ModelChange {
    async fn apply(
        self,
        server: CopilotServer,
        session: Arc<HostedSession>,
    ) -> Result<Arc<HostedSession>, RpcError> {
        let before = (session.model_name().cloned(), session.reasoning_effort());
        let system = Arc::clone(server.system());
        let change = move |choice: &mut SessionChoice| {
            if let Some(name) = &self.name {
                let chosen = choice.providers.model(&system, Some(name))?;
                (choice.model, choice.model_name) = (chosen.model, Some(chosen.name));
                choice.requested.model = Some(name.as_str().into());
            }
            if let Some(effort) = self.effort {
                choice.reasoning_effort = Some(effort);
                let further = &mut choice.requested.further;
                further.insert("reasoningEffort", json!(effort));
            }
            if let Some(capabilities) = self.capabilities {
                choice.sees_images = capabilities.sees_images();
                let further = &mut choice.requested.further;
                further.insert("modelCapabilities", json!(capabilities));
            }
            Ok(())
        };
        let session = reopen(server, session.id().clone(), "model", change).await?;
        let after = (session.model_name().cloned(), session.reasoning_effort());
        let data = json!({
            "newModel": after.0,
            "previousModel": before.0,
            "reasoningEffort": after.1,
            "previousReasoningEffort": before.1,
        });
        session.note_model_change(without_nulls(data)).await;
        Ok(session)
    }
}

/// Returns an object without its fields of the value null, which the SDKs cannot read.
pub(super) fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

async fn add_providers(
    server: CopilotServer,
    id: SessionId,
    providers: Vec<NamedProviderParams>,
    models: Vec<ListedModelParams>,
) -> MethodResult {
    let added = models.clone();
    let change = move |choice: &mut SessionChoice| choice.providers.add(providers, models);
    let window = context_window(&server);
    let session = reopen(server, id, "providers", change).await?;
    let choice = session.choice();
    let is_added = |id: &str| added.iter().any(|model| model.is_called(id));
    let infos = choice
        .providers
        .listed_models()
        .filter(|(id, _)| is_added(id));
    let infos = infos.map(|(id, name)| {
        let mut info = model_info(&id, window);
        info["name"] = name.into();
        info
    });
    Ok(json!({ "models": infos.collect::<Vec<_>>() }))
}
