//! `session.create` and `session.resume`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::{Cause, CauseKind, SessionId};
use allstop_host::finish_work;
use allstop_jsonrpc::RpcError;
use allstop_log::Version;
use allstop_runtime::{StartError, StartErrorKind, SystemPrompt};
use allstop_session::{ReserveResult, Session, SessionReservation, SessionStop, StopTarget};
use allstop_tools::{TOOL_NAME_LEN_MAX, is_valid_tool_name};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::ids::usable_id;
use super::info::context_window;
use super::method::{MethodAnswer, MethodCx, later, read, whole};
use super::provider::{
    ListedModelParams, NamedProviderParams, ProviderParams, RequestedModel, model_of,
};
use super::{handover, instructions};
use crate::connection::Client;
use crate::hosted::{
    AttachedClient, ClientOptions, DeclaredTool, FixedSettings, HostedSession, OpenMode,
    ResumeChoice, SessionChoice, ToolSelection, now,
};
use crate::server::{CopilotServer, LifecycleKind};

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
    request_elicitation: Option<bool>,
    hooks: Option<bool>,
    streaming: Option<bool>,
    working_directory: Option<PathBuf>,
    instruction_directories: Option<Vec<PathBuf>>,
    default_agent: Option<DefaultAgentParams>,
    #[serde(default)]
    providers: Vec<NamedProviderParams>,
    #[serde(default)]
    models: Vec<ListedModelParams>,
    commands: Option<Vec<CommandParams>>,
    continue_pending_work: Option<bool>,
    suppress_resume_event: Option<bool>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// A slash command of a client.
#[derive(Deserialize, Serialize)]
struct CommandParams {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefaultAgentParams {
    excluded_tools: Option<Vec<String>>,
}

/// Parts of a session that a client can request and that this server does not offer.
const NOT_OFFERED: [&str; 15] = [
    "mcpServers",
    "customAgents",
    "agent",
    "agentDirectories",
    "canvases",
    "commands",
    "hookDirectories",
    "imageGeneration",
    "managedSettings",
    "memory",
    "pluginDirectories",
    "reasoningEffort",
    "sandboxConfig",
    "sessionLimits",
    "skillDirectories",
];

#[derive(Deserialize)]
struct SystemMessageParams {
    mode: Option<String>,
    content: Option<String>,
    sections: Option<Map<String, Value>>,
}

impl SystemMessageParams {
    /// Text of the message and of its sections. The prompt of this server has no sections, so the texts of the client's
    /// sections follow it.
    fn text(&self) -> String {
        let sections = self.sections.iter().flat_map(Map::values);
        let texts = sections.filter_map(|section| section.get("content")?.as_str());
        let texts: Vec<&str> = texts.chain(self.content.as_deref()).collect();
        texts.join("\n\n")
    }
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
        let begun = match found.await {
            ReserveResult::Reserved(reservation) => Begun::New(reservation),
            ReserveResult::Open(joined) => match joined? {
                Joined::Attached(interrupting) => {
                    if let Some(stop) = interrupting {
                        drop(stop.receipt().await);
                    }
                    return Ok(json!({ "sessionId": id }));
                }
                Joined::Differs(setting) => Begun::Reopen(setting),
            },
        };
        let opening = opened(server.clone(), client, choice, mode, id.clone(), begun);
        let name = format!("opening of session {id}");
        whole(finish_work(server.connections(), name, opening)).await??;
        Ok(json!({ "sessionId": id }))
    }))
}

/// State of a session before it is opened.
enum Begun {
    New(SessionReservation),
    /// The session is open with another value of this setting.
    Reopen(&'static str),
}

/// Result of an attempt to join an open session.
enum Joined {
    /// The client is attached. The stop ends the turn that ran without a client, if the client does not continue it.
    Attached(Option<SessionStop>),
    /// The session has another value of this setting.
    Differs(&'static str),
}

/// Adds a client to an open session.
fn join(
    session: &Session,
    mode: OpenMode,
    client: &Arc<Client>,
    choice: &SessionChoice,
) -> Result<Joined, RpcError> {
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
    if let Some(setting) = hosted.difference(choice) {
        return Ok(Joined::Differs(setting));
    }
    // A client that does not continue the pending work of a session without a client gets the session without it.
    let is_interrupted = choice.resume.continues_work == Some(false) && hosted.is_alone();
    let was_active = session.is_busy() && !is_interrupted;
    let interrupting = is_interrupted.then(|| {
        let cause = Cause::new(CauseKind::Disconnect).detail("resumed without the pending work");
        session.stop(&StopTarget::Turn, cause)
    });
    if let Some(declared) = choice.declared.clone() {
        hosted.declare(declared);
    }
    hosted.attach(client, choice, None);
    note_resume(&hosted, choice, was_active);
    Ok(Joined::Attached(interrupting))
}

/// Sends the event of a resume.
fn note_resume(session: &HostedSession, choice: &SessionChoice, was_active: bool) {
    if choice.resume.is_silent {
        return;
    }
    session.note_resume(json!({
        "resumeTime": now(),
        // The number of turns. The events would have to be counted in the whole log, and a resume must not wait for it.
        "eventCount": session.session.last_turn().0,
        "selectedModel": session.model_name(),
        "continuePendingWork": choice.resume.continues_work.unwrap_or(false),
        "sessionWasActive": was_active,
    }));
}

/// Closes an idle session that a client resumes with other settings, and reserves it again. Returns the clients and the
/// choices of the closed session.
async fn reservation_to_reopen(
    server: &CopilotServer,
    id: &SessionId,
    setting: &str,
) -> Result<(SessionReservation, Vec<AttachedClient>, SessionChoice), RpcError> {
    let works = || {
        RpcError::invalid_params(format!(
            "session {id} is open with another `{setting}`, which does not change while the session works: omit \
             `{setting}`, or wait for the end of its work"
        ))
    };
    let hosted = server.open_session(id).ok_or_else(works)?;
    let (clients, choice) = (hosted.attached_clients(), hosted.choice());
    let is_idle = |hosted: &HostedSession| {
        let works = hosted.session.background();
        !hosted.session.is_busy() && !works.iter().any(|work| work.is_running())
    };
    let cause = Cause::new(CauseKind::User)
        .by("copilot")
        .detail("resumed with other settings");
    let closing = server.close_session_if(id, is_idle, cause);
    whole(Some(closing.ok_or_else(works)?)).await?;
    match server.registry().reserve(id, |_| ()).await {
        ReserveResult::Reserved(reservation) => Ok((reservation, clients, choice)),
        ReserveResult::Open(()) => Err(RpcError::overloaded(format!(
            "another client has just opened session {id}"
        ))),
    }
}

/// Opens a session for its first client.
async fn opened(
    server: CopilotServer,
    client: Arc<Client>,
    choice: Arc<SessionChoice>,
    mode: OpenMode,
    id: SessionId,
    begun: Begun,
) -> Result<(), RpcError> {
    let (reservation, others, mut choice) = match begun {
        Begun::New(reservation) => (reservation, Vec::new(), SessionChoice::clone(&choice)),
        Begun::Reopen(setting) => {
            let (reservation, others, before) =
                reservation_to_reopen(&server, &id, setting).await?;
            (reservation, others, choice.over(before))
        }
    };
    instructions::add(&mut choice).await;
    let mut session = HostedSession::open(&server, id.clone(), mode, &choice).await;
    if let Err(error) = &session
        && error.kind == StartErrorKind::SessionInUse
        && handover::release_elsewhere(&server, &id).await?
    {
        session = HostedSession::open(&server, id.clone(), mode, &choice).await;
    }
    let session = session.map_err(|error| refusal(&error))?;
    let from = (mode == OpenMode::Create).then_some(Version(1));
    session.attach(&client, &choice, from);
    for other in others.iter().filter(|other| other.client.id != client.id) {
        session.attach_again(other, &choice);
    }
    session.session.set_part(Arc::clone(&session));
    drop(reservation);
    match mode {
        OpenMode::Create => server.send_lifecycle(LifecycleKind::Created, &id),
        OpenMode::Resume => note_resume(&session, &choice, false),
    }
    // A client may have disconnected before the session existed. The disconnect then did not detach it from this
    // session.
    if client.output.is_closed() && session.detach(client.id) {
        session.begin_unattended(&server);
    }
    Ok(())
}

pub(super) fn refusal(error: &StartError) -> RpcError {
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
    let requested_model = RequestedModel {
        name: params.model.as_deref(),
        provider: params.provider.as_ref(),
        providers: &params.providers,
        models: &params.models,
    };
    let model = model_of(server, &requested_model)?;
    let not_offered = not_offered(&params);
    check_tools(params.tools.as_deref().unwrap_or_default())?;
    let has_message = params.system_message.is_some();
    let system_prompt = match params.system_message {
        None => SystemPrompt::Configured,
        Some(message) => {
            let content: Arc<str> = message.text().into();
            match message.mode.as_deref() {
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
        provider: params.provider.as_ref().map(ProviderParams::digest),
        system_message: has_message.then(|| system_prompt.clone()),
        available_tools: params.available_tools.clone(),
        excluded_tools: params.excluded_tools.clone(),
        working_directory: params.working_directory.clone(),
        instruction_directories: params.instruction_directories,
    };
    let mut excluded = params.excluded_tools.unwrap_or_default();
    // The session has no other agent that could use these tools.
    let of_agent = params.default_agent.and_then(|agent| agent.excluded_tools);
    excluded.extend(of_agent.unwrap_or_default());
    Ok(SessionChoice {
        context_window: context_window(server),
        commands: params
            .commands
            .map_or(Value::Null, |commands| json!(commands)),
        resume: ResumeChoice {
            continues_work: params.continue_pending_work,
            is_silent: params.suppress_resume_event.unwrap_or(false),
        },
        model,
        model_name: Some(model_name),
        folder: params.working_directory,
        system_prompt,
        filter: ToolSelection {
            available: params.available_tools,
            excluded,
        },
        declared: params.tools,
        client_options: ClientOptions {
            permissions: params.request_permission.unwrap_or(false),
            hooks: params.hooks.unwrap_or(false),
            user_input: params.request_user_input.unwrap_or(false),
            elicitation: params.request_elicitation.unwrap_or(false),
        },
        streaming: params.streaming.unwrap_or(false),
        requested,
        not_offered,
    })
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
    let is_text = |section: &Value| section.get("content").is_some_and(Value::is_string);
    let has_others = sections.is_some_and(|all| !all.values().all(is_text));
    let sections = has_others.then(|| "systemMessage.sections".to_owned());
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
pub(super) fn is_set(value: &Value) -> bool {
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
