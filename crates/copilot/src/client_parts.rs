//! MCP servers, skills and agents that the clients of a session name.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allstop_agent::SubAgentKind;
use allstop_core::HumanDuration;
use allstop_runtime::config::McpServerSection;
use allstop_runtime::{
    AgentDefinition, DefinitionFiles, Definitions, SessionMcpServer, SkillDefinition, System,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::builtin_agents;
use crate::http_url::check_url;
use crate::plugins::SessionPlugin;
use crate::provider::{ClientProviders, is_set};
use crate::sub_agent_settings::SubAgentSettings;

/// Folders with skills in a working directory, which a client can have searched.
pub(crate) const SKILL_FOLDERS: [&str; 4] = [
    ".github/skills",
    ".allstop/skills",
    ".agents/skills",
    ".claude/skills",
];

/// Folders with agents in a working directory, which a client can have searched.
pub(crate) const AGENT_FOLDERS: [&str; 2] = [".github/agents", ".allstop/agents"];

/// Maximum length of a server's name in the names of its tools.
const SERVER_NAME_LEN_MAX: usize = 22;

/// Types of a server that runs as a process.
const LOCAL_KINDS: [&str; 2] = ["local", "stdio"];

/// Types of a server that is reached over HTTP.
const REMOTE_KINDS: [&str; 2] = ["http", "sse"];

/// An MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClientServer {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
    /// Names of the offered tools. `*` means all tools.
    tools: Option<Vec<String>>,
    exclude_tools: Vec<String>,
    /// Limit of a call in milliseconds.
    timeout: Option<u64>,
    /// Client of the authorization server, for a program that gets the access tokens.
    oauth_client_id: Option<String>,
    oauth_public_client: Option<bool>,
    oauth_grant_type: Option<String>,
    /// True if `${NAME}` in a value stands for an environment variable, as in the files of plugins.
    #[serde(skip)]
    expands_variables: bool,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl ClientServer {
    /// Parses a server that is stored for all sessions. The error is the reason, for people, why the server cannot be used.
    pub(crate) fn stored(config: &Map<String, Value>) -> Result<Self, String> {
        let server: Self = serde_path_to_error::deserialize(Value::Object(config.clone()))
            .map_err(|error| format!("`config.{}`: {}", error.path(), error.inner()))?;
        if let Some((name, _)) = server.others.iter().find(|(_, value)| is_set(value)) {
            return Err(format!("`config.{name}` is not offered: leave it out"));
        }
        server.check("config")?;
        let needs_url = match server.kind.as_deref() {
            None => server.is_remote(),
            Some(kind) => REMOTE_KINDS.contains(&kind),
        };
        if needs_url != server.is_remote() {
            let missing = if needs_url { "url" } else { "command" };
            return Err(format!(
                "`config.{missing}` is missing, or another field excludes it"
            ));
        }
        Ok(server)
    }

    /// Parses a server of a plugin, like [`ClientServer::stored`].
    pub(crate) fn of_plugin(config: &Map<String, Value>) -> Result<Self, String> {
        let server = Self::stored(config)?;
        Ok(Self {
            expands_variables: true,
            ..server
        })
    }

    /// Checks the values of the fields. `field` is the name of the server in the parameters of the client.
    ///
    /// # Errors
    /// Returns the reason, for people, why the server cannot be used.
    pub(crate) fn check(&self, field: &str) -> Result<(), String> {
        let is_known = |kind: &str| LOCAL_KINDS.contains(&kind) || REMOTE_KINDS.contains(&kind);
        if let Some(kind) = self.kind.as_deref().filter(|kind| !is_known(kind)) {
            return Err(format!(
                "`{field}.type` is {kind:?}: use \"local\" or \"stdio\" with a `command`, or \"http\" or \"sse\" with a \
                 `url`"
            ));
        }
        let command = self.command.as_deref();
        if command.is_some_and(|command| command.trim().is_empty()) {
            return Err(format!(
                "`{field}.command` is empty: name the program of the server"
            ));
        }
        if let Some(url) = &self.url {
            check_url(&format!("{field}.url"), url)?;
        }
        if self.timeout == Some(0) {
            return Err(format!(
                "`{field}.timeout` is 0: use a positive number of milliseconds, or omit it"
            ));
        }
        Ok(())
    }

    /// True if the server is reached over HTTP.
    pub(crate) fn is_remote(&self) -> bool {
        self.url.is_some()
    }

    /// Client of the authorization server, in the form of the protocol.
    pub(crate) fn oauth_client(&self) -> Option<Value> {
        let id = self.oauth_client_id.as_ref()?;
        let mut client = json!({ "clientId": id });
        if let Some(is_public) = self.oauth_public_client {
            client["publicClient"] = is_public.into();
        }
        // The other type is the default.
        if self.oauth_grant_type.as_deref() == Some("client_credentials") {
            client["grantType"] = "client_credentials".into();
        }
        Some(client)
    }

    /// Returns the server in the form of the runtime.
    pub(crate) fn named(&self, name: &str, mode: EnvValueMode) -> SessionMcpServer {
        let mut section = McpServerSection::default();
        section.command.clone_from(&self.command);
        section.args.clone_from(&self.args);
        section.env.clone_from(&self.env);
        section.url.clone_from(&self.url);
        section.headers.clone_from(&self.headers);
        let tools = self.tools.clone().unwrap_or_default();
        section.allow = if tools.iter().any(|tool| tool == "*") {
            Vec::new()
        } else {
            tools
        };
        section.deny.clone_from(&self.exclude_tools);
        if self.tools.as_ref().is_some_and(Vec::is_empty) {
            // In the configuration, an empty list stands for all tools.
            section.deny.push("*".to_owned());
        }
        let limit = self.timeout.map(Duration::from_millis);
        section.call_timeout = limit.map(HumanDuration);
        section.expands_variables = self.expands_variables;
        SessionMcpServer {
            name: server_name(name).into_owned(),
            section,
            folder: self.cwd.clone(),
            is_env_indirect: mode == EnvValueMode::Indirect,
            starts_late: false,
        }
    }
}

/// Returns the name of a server in the names of its tools. The name of a tool has a limit, so a longer name of a server is
/// replaced by its beginning and a digest.
pub(crate) fn server_name(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.len() <= SERVER_NAME_LEN_MAX && name.bytes().all(is_plain) {
        return name.into();
    }
    let beginning: String = name
        .chars()
        .take(SERVER_NAME_LEN_MAX - 9)
        .map(|char| {
            if char.is_ascii_alphanumeric() {
                char
            } else {
                '-'
            }
        })
        .collect();
    let digest = Sha256::digest(name);
    let number = digest
        .iter()
        .take(4)
        .fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte));
    format!("{beginning}-{number:08x}").into()
}

/// Meaning of the values of a server's variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EnvValueMode {
    /// The values themselves.
    #[default]
    Direct,
    /// Names of environment variables of this process.
    Indirect,
}

/// An agent that a client defines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientAgent {
    pub(crate) name: String,
    pub(crate) display_name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) prompt: String,
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) model: Option<String>,
    /// False if the model cannot start the agent as a sub-agent.
    pub(crate) infer: Option<bool>,
    #[serde(default)]
    pub(crate) mcp_servers: BTreeMap<String, ClientServer>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl ClientAgent {
    /// Returns the agent of a file.
    pub(crate) fn of_file(agent: AgentDefinition) -> Self {
        Self {
            name: agent.name,
            display_name: None,
            description: Some(agent.description),
            prompt: agent.instructions,
            tools: agent.tools,
            model: agent.model,
            infer: None,
            mcp_servers: BTreeMap::new(),
            others: Map::new(),
        }
    }

    /// Describes the agent in the form of the protocol.
    pub(crate) fn info(&self, has_prompt: bool) -> Value {
        let mut info = json!({
            "id": self.name,
            "name": self.name,
            "displayName": self.display_name.as_ref().unwrap_or(&self.name),
            "description": self.description.as_deref().unwrap_or_default(),
            "userInvocable": true,
        });
        let more = [
            ("tools", self.tools.as_ref().map(|tools| json!(tools))),
            ("model", self.model.as_ref().map(|model| json!(model))),
            ("prompt", has_prompt.then(|| json!(self.prompt))),
        ];
        for (name, value) in more {
            if let (Value::Object(info), Some(value)) = (&mut info, value) {
                info.insert(name.to_owned(), value);
            }
        }
        info
    }

    /// Names of the tools of the agent; `None` for all tools.
    pub(crate) fn chosen_tools(&self) -> Option<Vec<String>> {
        let tools = self.tools.clone()?;
        (!tools.iter().any(|tool| tool == "*")).then_some(tools)
    }

    /// Settings of the agent that this server does not offer.
    pub(crate) fn not_offered(&self) -> impl Iterator<Item = String> {
        let others = self.others.iter().filter(|(_, value)| is_set(value));
        others.map(|(name, _)| format!("customAgents[{}].{name}", self.name))
    }

    fn kind(&self, system: &System, providers: &ClientProviders) -> SubAgentKind {
        let tools = self.chosen_tools();
        let model = self.model.as_deref();
        let model = model.and_then(|name| providers.model_of_agent(system, name));
        SubAgentKind {
            name: self.name.as_str().into(),
            description: self.description.as_deref().unwrap_or_default().into(),
            instructions: self.prompt.as_str().into(),
            tools: tools.map(|tools| tools.into_iter().map(Arc::from).collect()),
            model,
            reasoning_effort: None,
        }
    }
}

/// Parts of a session that its clients name.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientParts {
    pub(crate) servers: BTreeMap<String, ClientServer>,
    pub(crate) disabled_servers: BTreeSet<String>,
    pub(crate) env_value_mode: EnvValueMode,
    pub(crate) agents: Vec<ClientAgent>,
    /// Names of agents of the server that the model cannot start.
    pub(crate) excluded_agents: BTreeSet<String>,
    pub(crate) sub_agent_settings: SubAgentSettings,
    /// Agents in the folders of the working directory. An agent of a client replaces one with the same name.
    pub(crate) found_agents: Vec<ClientAgent>,
    /// Name of the agent that answers in place of the default agent.
    pub(crate) agent: Option<String>,
    pub(crate) skill_folders: Vec<PathBuf>,
    pub(crate) disabled_skills: BTreeSet<String>,
    /// True if the working directory is searched for skills and agents. `None` if the client makes no choice.
    pub(crate) searches_folder: Option<bool>,
    /// Folders with plugins for this session.
    pub(crate) plugin_folders: Vec<PathBuf>,
    /// Plugins of the open session, installed or in these folders.
    pub(crate) plugins: Vec<SessionPlugin>,
}

impl ClientParts {
    /// Returns the selected agent.
    pub(crate) fn selected(&self) -> Option<&ClientAgent> {
        let name = self.agent.as_ref()?;
        self.all_agents().find(|agent| agent.name == *name)
    }

    /// Agents of the clients and of the working directory.
    pub(crate) fn all_agents(&self) -> impl Iterator<Item = &ClientAgent> {
        let is_named = |name: &str| self.agents.iter().any(|agent| agent.name == name);
        let found = self.found_agents.iter();
        let found = found.filter(move |agent| !is_named(&agent.name));
        self.agents.iter().chain(found)
    }

    /// Servers of the clients and of the selected agent.
    pub(crate) fn named_servers(&self) -> BTreeMap<&String, &ClientServer> {
        let of_agent = self
            .selected()
            .into_iter()
            .flat_map(|agent| &agent.mcp_servers);
        let mut all: BTreeMap<_, _> = self.servers.iter().collect();
        all.extend(of_agent);
        all
    }

    fn plugin_servers(&self) -> BTreeMap<&String, &ClientServer> {
        let plugins = self.plugins.iter();
        plugins.flat_map(|one| &one.plugin.servers).collect()
    }

    /// Servers of the session, without those of the selected agent.
    pub(crate) fn session_servers(&self) -> BTreeMap<&String, &ClientServer> {
        let mut all = self.plugin_servers();
        all.extend(&self.servers);
        all
    }

    /// Servers of the session and of the selected agent.
    pub(crate) fn all_servers(&self) -> BTreeMap<&String, &ClientServer> {
        let mut all = self.plugin_servers();
        all.extend(self.named_servers());
        all
    }

    /// Enabled servers of the session and of the selected agent. The servers of plugins start late, because a plugin may
    /// have many servers that the session never needs.
    pub(crate) fn enabled_servers(&self) -> Vec<SessionMcpServer> {
        let is_enabled = |(name, _): &(&String, _)| !self.disabled_servers.contains(*name);
        let named = self.named_servers();
        let of_plugins = self.plugin_servers().into_iter();
        let of_plugins = of_plugins.filter(|(name, _)| !named.contains_key(name));
        let of_plugins = of_plugins
            .filter(is_enabled)
            .map(|(name, server)| SessionMcpServer {
                starts_late: true,
                ..server.named(name, EnvValueMode::Direct)
            });
        let mode = self.env_value_mode;
        let enabled = named.iter().map(|(name, server)| (*name, *server));
        let enabled = enabled.filter(is_enabled);
        let enabled = enabled.map(|(name, server)| server.named(name, mode));
        enabled.chain(of_plugins).collect()
    }

    /// Kinds of sub-agents that the model can start.
    pub(crate) fn kinds(
        &self,
        system: &System,
        providers: &ClientProviders,
    ) -> Arc<[SubAgentKind]> {
        let offered = self.all_agents().filter(|agent| agent.infer != Some(false));
        let mut excluded = self.excluded_agents.clone();
        // An agent of the client or of the working directory replaces an agent of the server.
        excluded.extend(self.all_agents().map(|agent| agent.name.clone()));
        let own = offered.map(|agent| agent.kind(system, providers));
        let all = own.chain(builtin_agents::kinds(&excluded));
        let settings = &self.sub_agent_settings;
        all.filter_map(|kind| settings.apply(kind, system, providers))
            .collect()
    }

    /// Reads the skills and the agents of the session from its folders, with the enabled and the disabled skills. Call it on
    /// a thread that may block.
    pub(crate) fn read_definitions(&self, folder: &Path) -> Definitions {
        let is_searched = self.searches_folder == Some(true);
        let below = |names: &[&str]| -> Vec<PathBuf> {
            let names = names.iter().filter(|_| is_searched);
            names.map(|name| folder.join(name)).collect()
        };
        let mut skills = self.skill_folders.clone();
        skills.extend(below(&SKILL_FOLDERS));
        let own = [
            DefinitionFiles::of_skill_folders(&skills),
            DefinitionFiles::of_agent_folders(&below(&AGENT_FOLDERS)),
        ];
        // A plugin replaces no definition of the clients or of the working directory.
        let of_plugins = self.plugins.iter().rev();
        let of_plugins = of_plugins.map(|one| &one.plugin.definitions);
        Definitions::parse(of_plugins.chain(&own))
    }

    /// Returns the enabled skills.
    pub(crate) fn enabled(&self, all: &Definitions) -> BTreeMap<String, SkillDefinition> {
        let mut skills = all.skills.clone();
        skills.retain(|name, _| !self.disabled_skills.contains(name));
        skills
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_server_names_stay_distinct_and_short() {
        assert_eq!(server_name("weather"), "weather");
        let names = [
            "a-very-long-name-of-a-server-1",
            "a-very-long-name-of-a-server-2",
            "a b",
        ];
        let short: BTreeSet<_> = names.iter().map(|name| server_name(name)).collect();
        assert_eq!(short.len(), names.len());
        for name in short {
            assert!(
                name.len() <= SERVER_NAME_LEN_MAX && !name.contains(' '),
                "{name}"
            );
        }
    }

    #[test]
    fn tools_of_a_server_are_chosen() {
        let server = |tools: Value| -> ClientServer {
            serde_json::from_value(json!({ "command": "x", "tools": tools })).expect("a server")
        };
        assert!(
            server(json!(["*"]))
                .named("s", EnvValueMode::Direct)
                .section
                .allow
                .is_empty()
        );
        assert_eq!(
            server(json!(["a"]))
                .named("s", EnvValueMode::Direct)
                .section
                .allow,
            ["a"]
        );
        assert_eq!(
            server(json!([]))
                .named("s", EnvValueMode::Direct)
                .section
                .deny,
            ["*"]
        );
        assert!(
            server(Value::Null)
                .named("s", EnvValueMode::Direct)
                .section
                .deny
                .is_empty()
        );
    }
}
