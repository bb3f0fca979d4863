//! `session.create` and `session.resume`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use allstop_host::finish_work;
use allstop_jsonrpc::RpcError;
use allstop_log::Version;
use allstop_model::Model;
use allstop_runtime::{ModelChoice, StartError, StartErrorKind, SystemPrompt};
use allstop_session::{ReserveResult, Session, SessionReservation};
use allstop_tools::{TOOL_NAME_LEN_MAX, is_valid_tool_name};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::ids::usable_id;
use super::method::{MethodAnswer, MethodCx, later, read, whole};
use crate::connection::Client;
use crate::hosted::{
    ClientOptions, DeclaredTool, FixedSettings, HostedSession, OpenMode, SessionChoice,
    ToolSelection,
};
use crate::server::CopilotServer;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenParams {
    session_id: Option<String>,
    model: Option<String>,
    provider: Option<ProviderParams>,
    tools: Option<Vec<DeclaredTool>>,
    system_message: Option<SystemMessageParams>,
    available_tools: Option<Vec<String>>,
    excluded_tools: Option<Vec<String>>,
    request_permission: Option<bool>,
    request_user_input: Option<bool>,
    hooks: Option<bool>,
    streaming: Option<bool>,
    working_directory: Option<PathBuf>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Parts of a session that a client can request and that this server does not offer.
const NOT_OFFERED: [&str; 18] = [
    "mcpServers",
    "customAgents",
    "agent",
    "agentDirectories",
    "canvases",
    "commands",
    "hookDirectories",
    "imageGeneration",
    "instructionDirectories",
    "managedSettings",
    "memory",
    "models",
    "pluginDirectories",
    "providers",
    "reasoningEffort",
    "sandboxConfig",
    "sessionLimits",
    "skillDirectories",
];

/// Options of a model provider that supply a key for each request. The server cannot use them, and without the key the
/// provider would refuse every request.
const KEYS_NOT_OFFERED: [&str; 2] = ["apiKeyCommand", "hasBearerTokenProvider"];

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProviderParams {
    #[serde(rename = "type")]
    kind: Option<String>,
    base_url: Option<String>,
    api_key: Option<String>,
    bearer_token: Option<String>,
    wire_api: Option<String>,
    wire_model: Option<String>,
    model_id: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
struct SystemMessageParams {
    mode: Option<String>,
    content: Option<String>,
    sections: Option<Map<String, Value>>,
}

pub(super) fn create(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: OpenParams = read(params)?;
    let id = params.session_id.clone();
    let id = id.unwrap_or_else(|| ulid::Ulid::generate().to_string());
    begin(cx, id, OpenMode::Create, params)
}

pub(super) fn resume(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: OpenParams = read(params)?;
    let id = params.session_id.clone();
    let id = id.ok_or_else(|| RpcError::invalid_params("`sessionId` is missing"))?;
    begin(cx, id, OpenMode::Resume, params)
}

fn begin(
    cx: &MethodCx<'_>,
    id: String,
    mode: OpenMode,
    params: OpenParams,
) -> Result<MethodAnswer, RpcError> {
    let id = usable_id(id)?;
    let choice = Arc::new(choice_of(cx.server, params)?);
    let (server, client) = (cx.server.clone(), Arc::clone(cx.client));
    let (of_client, chosen) = (Arc::clone(&client), Arc::clone(&choice));
    let join = move |session: &Session| join(session, mode, &of_client, &chosen);
    let found = server.registry().reserve(&id, join);
    Ok(later(async move {
        match found.await {
            ReserveResult::Reserved(reservation) => {
                let opening = opened(server.clone(), client, choice, mode, reservation);
                let name = format!("opening of session {id}");
                whole(finish_work(server.connections(), name, opening)).await??;
            }
            ReserveResult::Open(joined) => joined?,
        }
        Ok(json!({ "sessionId": id }))
    }))
}

/// Adds a client to an open session.
fn join(
    session: &Session,
    mode: OpenMode,
    client: &Arc<Client>,
    choice: &SessionChoice,
) -> Result<(), RpcError> {
    let id = session.id();
    if mode == OpenMode::Create {
        return Err(RpcError::invalid_params(format!(
            "session {id} exists: resume it, or choose another id"
        )));
    }
    let hosted = session.part::<HostedSession>();
    let hosted = hosted.ok_or_else(|| {
        RpcError::invalid_params(format!(
            "session {id} is open, but not available to clients"
        ))
    })?;
    if let Some(name) = hosted.difference(choice) {
        return Err(RpcError::invalid_params(format!(
            "session {id} is open with another `{name}`, which does not change while the session is open: omit `{name}`, \
             or close the session first (`allstop.stop` with the extent `session`)"
        )));
    }
    if let Some(declared) = choice.declared.clone() {
        hosted.declare(declared);
    }
    hosted.attach(client, choice, None);
    Ok(())
}

/// Opens a reserved session for its first client.
async fn opened(
    server: CopilotServer,
    client: Arc<Client>,
    choice: Arc<SessionChoice>,
    mode: OpenMode,
    reservation: SessionReservation,
) -> Result<(), RpcError> {
    let id = reservation.id().clone();
    let session = HostedSession::open(&server, id, mode, &choice).await;
    let session = session.map_err(|error| refusal(&error))?;
    let from = (mode == OpenMode::Create).then_some(Version(1));
    session.attach(&client, &choice, from);
    session.session.set_part(Arc::clone(&session));
    drop(reservation);
    // A client may have disconnected before the session existed. The disconnect then did not detach it from this
    // session.
    if client.output.is_closed() && session.detach(client.id) {
        session.begin_unattended(&server);
    }
    Ok(())
}

fn refusal(error: &StartError) -> RpcError {
    // The hints of the other errors are also useful to a program.
    let hint = match error.kind {
        StartErrorKind::SessionExists => Some("`session.resume` continues it"),
        StartErrorKind::UnknownSession => Some("`session.list` names all sessions"),
        _ => error.hint.as_deref(),
    };
    let message = match hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message.clone(),
    };
    if error.kind.is_usage() {
        RpcError::invalid_params(message)
    } else {
        RpcError::internal_error(message)
    }
}

fn choice_of(server: &CopilotServer, params: OpenParams) -> Result<SessionChoice, RpcError> {
    let model = model_of(server, &params)?;
    let not_offered = not_offered(&params);
    check_tools(params.tools.as_deref().unwrap_or_default())?;
    let has_message = params.system_message.is_some();
    let system_prompt = match params.system_message {
        None => SystemPrompt::Configured,
        Some(SystemMessageParams { mode, content, .. }) => {
            let content: Arc<str> = content.unwrap_or_default().into();
            match mode.as_deref() {
                Some("replace") => SystemPrompt::Replaced(content),
                _ if content.is_empty() => SystemPrompt::Configured,
                _ => SystemPrompt::Appended(content),
            }
        }
    };
    let model_name: Arc<str> = model.as_ref().map_or_else(
        || server.system().model_name().into(),
        |model| model.name().into(),
    );
    let requested = FixedSettings {
        model: params.model.as_deref().map(Arc::from),
        provider: params.provider.as_ref().map(digest_of),
        system_message: has_message.then(|| system_prompt.clone()),
        available_tools: params.available_tools.clone(),
        excluded_tools: params.excluded_tools.clone(),
        working_directory: params.working_directory.clone(),
    };
    Ok(SessionChoice {
        model,
        model_name: Some(model_name),
        folder: params.working_directory,
        system_prompt,
        filter: ToolSelection {
            available: params.available_tools,
            excluded: params.excluded_tools.unwrap_or_default(),
        },
        declared: params.tools,
        client_options: ClientOptions {
            permissions: params.request_permission.unwrap_or(false),
            hooks: params.hooks.unwrap_or(false),
            user_input: params.request_user_input.unwrap_or(false),
        },
        streaming: params.streaming.unwrap_or(false),
        requested,
        not_offered,
    })
}

/// Digest of a provider, to recognise it without its key.
fn digest_of(provider: &ProviderParams) -> [u8; 32] {
    // A structure of strings and JSON values always has a form in JSON.
    Sha256::digest(serde_json::to_vec(provider).unwrap_or_default()).into()
}

/// Returns warnings about requested parts that a session does not offer.
fn not_offered(params: &OpenParams) -> Vec<Arc<str>> {
    let of_session = NOT_OFFERED.iter().filter(|name| {
        let value = params.others.get(**name);
        value.is_some_and(is_set)
    });
    let of_session = of_session.map(|name| (*name).to_owned());
    let message = params.system_message.as_ref();
    let sections = message.and_then(|message| message.sections.as_ref());
    let has_sections = sections.is_some_and(|all| !all.is_empty());
    let sections = has_sections.then(|| "systemMessage.sections".to_owned());
    let of_provider = params.provider.iter().flat_map(|provider| {
        let others = provider.others.iter().filter(|(_, value)| is_set(value));
        others.map(|(name, _)| format!("provider.{name}"))
    });
    let names = of_session.chain(sections).chain(of_provider);
    names
        .map(|name| format!("`{name}` is not offered and has no effect in this session").into())
        .collect()
}

/// True if a value requests a feature.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => !all.is_empty(),
        _ => true,
    }
}

/// Refuses a declaration with tools that cannot be offered to the model. Otherwise such tools would be missing without
/// a warning.
fn check_tools(tools: &[DeclaredTool]) -> Result<(), RpcError> {
    let mut names = HashSet::new();
    for DeclaredTool { name, .. } in tools {
        if !is_valid_tool_name(name) {
            return Err(RpcError::invalid_params(format!(
                "the tool name {name:?} is invalid: use 1 to {TOOL_NAME_LEN_MAX} letters, digits, `_` and `-` of ASCII"
            )));
        }
        if !names.insert(name) {
            return Err(RpcError::invalid_params(format!(
                "the tool {name:?} is declared twice"
            )));
        }
    }
    Ok(())
}

/// Returns the model of the client's provider, or else the configured model. The client may choose another name for the
/// configured model.
fn model_of(
    server: &CopilotServer,
    params: &OpenParams,
) -> Result<Option<Arc<dyn Model>>, RpcError> {
    let system = server.system();
    let model = if let Some(provider) = &params.provider {
        let kind = provider.kind.as_deref().unwrap_or("openai");
        let wire = provider.wire_api.as_deref().unwrap_or("completions");
        if kind != "openai" || wire != "completions" {
            return Err(RpcError::invalid_params(format!(
                "a provider of type {kind:?} with the API {wire:?} is not supported: use \"openai\" with \"completions\""
            )));
        }
        if let Some(name) = KEYS_NOT_OFFERED
            .iter()
            .find(|name| provider.others.get(**name).is_some_and(is_set))
        {
            return Err(RpcError::invalid_params(format!(
                "`provider.{name}` is not supported: pass `apiKey` or `bearerToken`"
            )));
        }
        let named = provider.wire_model.as_ref().or(provider.model_id.as_ref());
        let name = named.or(params.model.as_ref());
        let name = name.ok_or_else(|| RpcError::invalid_params("`model` is missing"))?;
        let key = provider
            .api_key
            .clone()
            .or_else(|| provider.bearer_token.clone());
        system.provider_model(name, provider.base_url.clone(), key)
    } else {
        match (&params.model, ModelChoice::of(&system.config().model)) {
            (
                Some(name),
                Some(ModelChoice::Named {
                    base_url,
                    name: known,
                }),
            ) if *name != known => system.provider_model(name, base_url, None),
            (Some(name), None) if !system.has_model() => system.provider_model(name, None, None),
            _ => return Ok(None),
        }
    };
    model.map(Some).map_err(|error| refusal(&error))
}
