//! Parameters of `session.create` and `session.resume`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::SessionId;
use allstop_jsonrpc::RpcError;
use allstop_model::ReasoningEffort;
use allstop_runtime::SystemPrompt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::compaction_params::{InfiniteSessionParams, compaction_of};
use super::info::context_window;
use super::method::MethodCx;
use super::model_capabilities::ModelCapabilities;
use super::open_checks;
use crate::client_parts::{ClientAgent, ClientParts, ClientServer, EnvValueMode};
use crate::hosted::{
    CanvasProvider, ClientCanvases, ClientOptions, DeclaredCanvas, DeclaredTool, FixedSettings,
    OpenCanvas, RequestedPrompt, ResumeChoice, SectionChanges, SessionChoice, SessionLimits,
    ToolSelection,
};
use crate::provider::{
    ClientProviders, ListedModelParams, NamedProviderParams, ProviderParams, is_set,
};
use crate::refusal::check_optional_text;
use crate::request_route::RequestRoute;
use crate::sub_agent_settings::SubAgentSettings;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OpenParams {
    pub(super) session_id: Option<String>,
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
    instruction_directories: Option<Vec<PathBuf>>,
    default_agent: Option<DefaultAgentParams>,
    #[serde(default)]
    providers: Vec<NamedProviderParams>,
    #[serde(default)]
    models: Vec<ListedModelParams>,
    commands: Option<Vec<ClientCommand>>,
    canvases: Option<Vec<DeclaredCanvas>>,
    canvas_provider: Option<CanvasProvider>,
    open_canvases: Option<Vec<OpenCanvas>>,
    continue_pending_work: Option<bool>,
    suppress_resume_event: Option<bool>,
    reasoning_effort: Option<ReasoningEffort>,
    request_elicitation: Option<bool>,
    request_exit_plan_mode: Option<bool>,
    request_auto_mode_switch: Option<bool>,
    request_mcp_apps: Option<bool>,
    model_capabilities: Option<ModelCapabilities>,
    client_name: Option<String>,
    mcp_servers: Option<BTreeMap<String, ClientServer>>,
    disabled_mcp_servers: Option<BTreeSet<String>>,
    env_value_mode: Option<EnvValueMode>,
    custom_agents: Option<Vec<ClientAgent>>,
    #[serde(rename = "excludedBuiltinAgents")]
    excluded_agents: Option<BTreeSet<String>>,
    /// Name of the agent that answers.
    agent: Option<String>,
    enable_skills: Option<bool>,
    skill_directories: Option<Vec<PathBuf>>,
    disabled_skills: Option<BTreeSet<String>>,
    enable_config_discovery: Option<bool>,
    plugin_directories: Option<Vec<PathBuf>>,
    infinite_sessions: Option<InfiniteSessionParams>,
    session_limits: Option<SessionLimits>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// A slash command of a client.
#[derive(Deserialize, Serialize)]
struct ClientCommand {
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
const NOT_OFFERED: [&str; 18] = [
    "additionalDirectories",
    "agentDirectories",
    "configDir",
    "contextTier",
    "enableCitations",
    "enableFileChangeTracking",
    "enableFileHooks",
    "enableSessionStore",
    "hookDirectories",
    "imageGeneration",
    "largeOutput",
    "managedSettings",
    "memory",
    "organizationCustomInstructions",
    "reasoningSummary",
    "requestCanvasRenderer",
    "sandboxConfig",
    "toolSearch",
];

/// Maximum number of folders with plugins. Each opening of the session reads all of them.
const PLUGIN_FOLDERS_MAX: usize = 64;

/// Use of the text of a system message. With `customize`, the text is appended, too.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SystemMessageMode {
    Append,
    Replace,
    Customize,
}

#[derive(Deserialize)]
struct SystemMessageParams {
    mode: Option<SystemMessageMode>,
    content: Option<String>,
    sections: Option<SectionChanges>,
}

impl SystemMessageParams {
    fn requested(self) -> RequestedPrompt {
        let content: Arc<str> = self.content.unwrap_or_default().into();
        match self.mode {
            Some(SystemMessageMode::Replace) => RequestedPrompt {
                whole: SystemPrompt::Replaced(content),
                sections: SectionChanges::default(),
            },
            None | Some(SystemMessageMode::Append | SystemMessageMode::Customize) => {
                RequestedPrompt {
                    whole: if content.is_empty() {
                        SystemPrompt::Configured
                    } else {
                        SystemPrompt::Appended(content)
                    },
                    sections: self.sections.unwrap_or_default(),
                }
            }
        }
    }
}

/// Returns the parts of a session that the client chooses.
pub(super) fn choice_of(
    cx: &MethodCx<'_>,
    id: &SessionId,
    mut params: OpenParams,
) -> Result<SessionChoice, RpcError> {
    let server = cx.server;
    let mut not_offered = not_offered(&params);
    if params.request_auto_mode_switch == Some(true) && server.options().auto_model.is_none() {
        let message = "`requestAutoModeSwitch` has no effect: start the server with `--auto-model`";
        not_offered.push(message.into());
    }
    check_values(&params)?;
    let system_message = params.system_message.take();
    let system_message = system_message.map(SystemMessageParams::requested);
    let system_prompt = system_message.as_ref().map(|message| message.whole.clone());
    let system_prompt = system_prompt.unwrap_or_default();
    let further = further(&params);
    let window = context_window(server);
    let compaction = compaction_of(params.infinite_sessions.as_ref(), window)?;
    let parts = parts_of(&mut params)?;
    let requested = FixedSettings {
        model: params.model.as_deref().map(Arc::from),
        provider: params.provider.as_ref().map(ProviderParams::digest),
        system_message,
        available_tools: params.available_tools.clone(),
        excluded_tools: params.excluded_tools.clone(),
        working_directory: params.working_directory.clone(),
        instruction_directories: params.instruction_directories,
        further,
    };
    let providers = ClientProviders {
        only: params.provider,
        listed: params.providers,
        models: params.models,
        client_name: params.client_name,
        route: RequestRoute::new(is_carried(cx, id)),
    };
    providers.check()?;
    let chosen = providers.model(server.system(), params.model.as_deref())?;
    let mut excluded = params.excluded_tools.unwrap_or_default();
    // The session has no other agent that could use these tools.
    let of_agent = params.default_agent.and_then(|agent| agent.excluded_tools);
    excluded.extend(of_agent.unwrap_or_default());
    Ok(SessionChoice {
        context_window: window,
        compaction,
        commands: params
            .commands
            .map_or(Value::Null, |commands| json!(commands)),
        canvases: ClientCanvases {
            declared: params.canvases.unwrap_or_default(),
            provider: params.canvas_provider,
            open: params.open_canvases.unwrap_or_default(),
        },
        resume: ResumeChoice {
            continues_work: params.continue_pending_work,
            is_silent: params.suppress_resume_event.unwrap_or(false),
        },
        model: chosen.model,
        model_name: Some(chosen.name),
        sees_images: params
            .model_capabilities
            .is_none_or(ModelCapabilities::sees_images),
        limits: params.session_limits.unwrap_or_default(),
        providers,
        reasoning_effort: params.reasoning_effort,
        parts,
        folder: params.working_directory,
        system_prompt,
        client: Arc::clone(cx.client),
        filter: ToolSelection {
            available: params.available_tools,
            excluded,
            of_agent: None,
        },
        declared: params.tools,
        client_options: ClientOptions {
            permissions: params.request_permission.unwrap_or(false),
            hooks: params.hooks.unwrap_or(false),
            user_input: params.request_user_input.unwrap_or(false),
            elicitation: params.request_elicitation.unwrap_or(false),
            plan_exit: params.request_exit_plan_mode.unwrap_or(false),
            auto_mode: params.request_auto_mode_switch.unwrap_or(false),
            // The SDKs name this handler after the session is open.
            mcp_tokens: false,
            mcp_apps: params.request_mcp_apps.unwrap_or(false),
        },
        streaming: params.streaming.unwrap_or(false),
        requested,
        not_offered,
    })
}

/// True if a client carries the requests to models: the client that opens the session, or a client of the open session.
fn is_carried(cx: &MethodCx<'_>, id: &SessionId) -> bool {
    let clients = cx.server.open_session(id);
    let clients = clients.map(|session| session.attached_clients());
    let mut clients = clients.into_iter().flatten();
    cx.client.carries_requests() || clients.any(|attached| attached.client.carries_requests())
}

/// Returns the requested settings that are compared as a whole.
fn further(params: &OpenParams) -> BTreeMap<&'static str, Value> {
    let settings = [
        ("reasoningEffort", json!(params.reasoning_effort)),
        (
            "mcpServers",
            json!([params.mcp_servers, params.disabled_mcp_servers]),
        ),
        ("customAgents", json!(params.custom_agents)),
        ("excludedBuiltinAgents", json!(params.excluded_agents)),
        ("infiniteSessions", json!(params.infinite_sessions)),
        ("modelCapabilities", json!(params.model_capabilities)),
        ("sessionLimits", json!(params.session_limits)),
        ("agent", json!(params.agent)),
        ("pluginDirectories", json!(params.plugin_directories)),
        (
            "skillDirectories",
            json!([
                params.skill_directories,
                params.disabled_skills,
                params.enable_skills.filter(|enabled| !enabled),
                params.enable_config_discovery.filter(|enabled| *enabled),
            ]),
        ),
    ];
    let is_requested = |value: &Value| match value {
        Value::Array(all) => all.iter().any(is_set),
        value => is_set(value),
    };
    settings
        .into_iter()
        .filter(|(_, value)| is_requested(value))
        .collect()
}

/// Takes the MCP servers, agents and skills from the parameters.
fn parts_of(params: &mut OpenParams) -> Result<ClientParts, RpcError> {
    let has_skills = params.enable_skills != Some(false);
    let parts = ClientParts {
        servers: params.mcp_servers.take().unwrap_or_default(),
        disabled_servers: params.disabled_mcp_servers.take().unwrap_or_default(),
        env_value_mode: params.env_value_mode.unwrap_or_default(),
        agents: params.custom_agents.take().unwrap_or_default(),
        excluded_agents: params.excluded_agents.take().unwrap_or_default(),
        sub_agent_settings: SubAgentSettings::default(),
        agent: params.agent.take(),
        skill_folders: params
            .skill_directories
            .take()
            .filter(|_| has_skills)
            .unwrap_or_default(),
        disabled_skills: params.disabled_skills.take().unwrap_or_default(),
        found_agents: Vec::new(),
        plugin_folders: params.plugin_directories.take().unwrap_or_default(),
        plugins: Vec::new(),
        searches_folder: params
            .enable_config_discovery
            .filter(|_| has_skills)
            .or((!has_skills).then_some(false)),
    };
    if let Some(name) = &parts.agent
        && parts.selected().is_none()
        && parts.searches_folder == Some(false)
    {
        let message = format!("the agent {name:?} is not among `customAgents`");
        return Err(RpcError::invalid_params(message));
    }
    Ok(parts)
}

/// Returns warnings about requested parts that a session does not offer.
fn not_offered(params: &OpenParams) -> Vec<Arc<str>> {
    let of_session = NOT_OFFERED.iter().filter(|name| {
        let value = params.others.get(**name);
        value.is_some_and(is_set)
    });
    let of_session = of_session.map(|name| (*name).to_owned());
    let of_provider = params.provider.iter().flat_map(|provider| {
        let others = provider.others.iter().filter(|(_, value)| is_set(value));
        others.map(|(name, _)| format!("provider.{name}"))
    });
    let agents = params.custom_agents.iter().flatten();
    let of_agents = agents.flat_map(ClientAgent::not_offered);
    let names = of_session.chain(of_provider).chain(of_agents);
    names
        .map(|name| format!("`{name}` is not offered and has no effect in this session").into())
        .collect()
}

/// Refuses values that the client cannot have meant. Otherwise they would change the session without a warning.
fn check_values(params: &OpenParams) -> Result<(), RpcError> {
    check_optional_text("model", params.model.as_deref())?;
    check_optional_text("agent", params.agent.as_deref())?;
    open_checks::check_tools(params.tools.as_deref().unwrap_or_default())?;
    open_checks::check_agents(params.custom_agents.as_deref().unwrap_or_default())?;
    let commands = params.commands.iter().flatten();
    let names: Vec<_> = commands.map(|command| command.name.as_str()).collect();
    open_checks::check_commands(&names)?;
    if params.plugin_directories.as_ref().map_or(0, Vec::len) > PLUGIN_FOLDERS_MAX {
        let message = format!("more than {PLUGIN_FOLDERS_MAX} `pluginDirectories`");
        return Err(RpcError::invalid_params(message));
    }
    if let Some(servers) = &params.mcp_servers {
        open_checks::check_servers("mcpServers", servers)?;
    }
    Ok(())
}
