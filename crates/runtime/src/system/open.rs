//! Creation of rules, folders and agents from the configuration.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use allstop_agent::{Agent, Settings, SubAgentBackground, SubAgents};
use allstop_model::{RECORDING_BEGINNING, RequestSettings};
use allstop_scope::NotStarted;
use allstop_session::{AgentRequest, marker_prefix};
use allstop_tools::permission::ModeSwitch;
use allstop_tools::{
    BackgroundHost, FolderAccess, OutputFolder, PermissionPolicy, Permissions, Prompter,
    ShellConfig, ToolRegistry, ToolSource, Workspace, builtin_tools, names,
};

use super::SystemParts;
use super::advance_answers::AdvanceAnswers;
use super::hidden::without_exempted;
use super::joined_tools::JoinedTools;
use super::options::SystemOptions;
use super::setup::{QuestionRecipient, SessionSetup};
use super::spill::SpillFolder;
use crate::command::{CommandGuardrail, CommandHook, CommandSettings};
use crate::config::Config;
use crate::definitions::{SkillDefinition, SkillTool};
use crate::error::{StartError, StartErrorKind};
use crate::prompt::ComposedPrompt;

/// Name of the agent of the configuration in traces.
const AGENT_NAME: &str = "allstop";

pub(super) fn policy(config: &Config) -> PermissionPolicy {
    let permissions = config.permissions.clone();
    let mut policy = PermissionPolicy::default();
    policy.allow = permissions.allow;
    policy.ask = permissions.ask;
    policy.deny = permissions.deny;
    policy
}

/// Returns an error if a rule names an unknown tool: a misspelt `deny` would deny nothing. The tool of an MCP server that
/// is not configured is no error, because a server of the user or of a project can be removed without its rules.
pub(super) fn check_rules(config: &Config) -> Result<(), StartError> {
    for line in rules_of_absent_servers(config) {
        tracing::warn!("{line}");
    }
    let mut rules = rules(config);
    match rules.find(|(tool, _)| !is_known(config, tool) && absent_server(config, tool).is_none()) {
        None => Ok(()),
        Some((_, what)) => Err(unknown_tool(&what)),
    }
}

/// A line about each rule that names a tool of an MCP server that is not configured.
pub fn rules_of_absent_servers(config: &Config) -> Vec<String> {
    let lines = rules(config).filter_map(|(tool, what)| {
        let server = absent_server(config, tool)?;
        Some(format!(
            "{what} has no effect: no MCP server `{server}` is configured"
        ))
    });
    lines.collect()
}

/// The tools that rules name, each with the rule for people.
fn rules(config: &Config) -> impl Iterator<Item = (&str, String)> {
    let permissions = &config.permissions;
    let all = [&permissions.allow, &permissions.ask, &permissions.deny];
    let all = all.into_iter().flatten();
    let all = all.map(|rule| (rule.tool(), format!("the permission rule `{rule}`")));
    let excluded = config.agents.exclude.iter().map(|tool| {
        let what = format!("`{tool}` in `exclude` of the section `[agents]`");
        (tool.as_str(), what)
    });
    all.chain(excluded)
}

fn is_known(config: &Config, tool: &str) -> bool {
    names::ALL.contains(&tool)
        || [names::AGENT, names::SKILL].contains(&tool)
        || super::mcp::may_have_tool(config, tool)
}

/// The server in the name `SERVER__TOOL`, if it is not configured.
fn absent_server<'a>(config: &Config, tool: &'a str) -> Option<&'a str> {
    let (server, name) = tool.split_once("__")?;
    let is_name = !server.is_empty() && !name.is_empty();
    (is_name && !config.mcp.servers.contains_key(server)).then_some(server)
}

fn unknown_tool(what: &str) -> StartError {
    let message = format!("{what} names an unknown tool");
    let hint = format!(
        "the tools are {}, {}, {}, and `SERVER__TOOL` of a configured server",
        names::ALL.join(", "),
        names::AGENT,
        names::SKILL
    );
    StartError::new(StartErrorKind::Config, message).hint(hint)
}

/// Checks the folders before any other step. Returns the first error.
pub(super) fn check_folders(options: &SystemOptions) -> Result<(), StartError> {
    workspace(&options.folder, &options.config)?;
    // The path of the recording is checked here, before the first model call costs money.
    let Some(file) = options.record.as_deref() else {
        return Ok(());
    };
    let refused = |why: &str, hint: &'static str| {
        let message = format!("the recording {} {why}", file.display());
        Err(StartError::new(StartErrorKind::Folder, message).hint(hint))
    };
    if file.is_dir() || !folder_of(file).is_dir() {
        return refused("cannot be written", "name a file in a folder that exists");
    }
    if has_foreign_content(file) {
        return refused(
            "would replace a file that is no recording",
            "name another file",
        );
    }
    Ok(())
}

/// True if the file exists, and neither is empty nor begins like a recording.
fn has_foreign_content(file: &Path) -> bool {
    if !file.is_file() {
        return false;
    }
    let mut beginning = Vec::new();
    let read = std::fs::File::open(file).and_then(|file| {
        let mut part = file.take(RECORDING_BEGINNING.len() as u64);
        part.read_to_end(&mut beginning)
    });
    read.is_ok() && !beginning.is_empty() && beginning != RECORDING_BEGINNING.as_bytes()
}

fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().unwrap_or(file);
    if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    }
}

fn workspace(folder: &Path, config: &Config) -> Result<Workspace, StartError> {
    let failed = |what: &str, folder: &Path, error: &std::io::Error| {
        StartError::new(
            StartErrorKind::Folder,
            format!("the {what} {} cannot be used: {error}", folder.display()),
        )
        .hint("name an existing folder")
    };
    let mut workspace =
        Workspace::new(folder).map_err(|error| failed("working directory", folder, &error))?;
    let allowed = &config.workspace;
    let read = allowed
        .read
        .iter()
        .map(|folder| (folder, FolderAccess::Read));
    let write = allowed
        .write
        .iter()
        .map(|folder| (folder, FolderAccess::ReadWrite));
    for (folder, access) in read.chain(write) {
        workspace = workspace
            .allow(folder, access)
            .map_err(|error| failed("allowed folder", folder, &error))?;
    }
    Ok(workspace)
}

/// Workspace of a session. The model may also read its long output and the files of the skills.
fn workspace_of(
    parts: &SystemParts,
    setup: &SessionSetup,
    spill: &SpillFolder,
    skills: &BTreeMap<String, SkillDefinition>,
) -> Result<Workspace, StartError> {
    let mut workspace = workspace(parts.folder_of(setup), &parts.config)?
        .reserve(parts.store_files.iter().cloned());
    // Tools save long output in this folder, and the model may read it there. If the folder could not be created, no
    // such output exists.
    if let Ok(with_spill) = workspace.clone().allow(spill.path(), FolderAccess::Read) {
        workspace = with_spill;
    }
    // A skill names files in its folder. Skills of the user are outside the working directory.
    for skill in skills.values() {
        if let Some(folder) = skill.folder()
            && let Ok(with_skill) = workspace.clone().allow(folder, FolderAccess::Read)
        {
            workspace = with_skill;
        }
    }
    Ok(workspace)
}

/// Prompter of a session. Questions of MCP servers always go to its clients.
fn prompter_of(
    parts: &SystemParts,
    setup: &SessionSetup,
    request: &AgentRequest,
) -> Arc<dyn Prompter> {
    let clients = Arc::clone(&request.prompter);
    match setup.recipient {
        QuestionRecipient::Subscribers => clients,
        QuestionRecipient::Prompter => Arc::new(AdvanceAnswers {
            permissions: Arc::clone(&parts.prompter),
            servers: clients,
        }),
    }
}

/// Settings of the agent of a session, from the configuration and the choices of its opener.
fn settings_of(parts: &SystemParts, setup: &SessionSetup, prompt: &ComposedPrompt) -> Settings {
    let mut settings = parts.config.settings();
    if let Some(chosen) = &setup.model {
        settings.context = Some(parts.config.context_limits(Some(chosen.name())));
    }
    if let (Some(chosen), None) = (setup.stop_policy, parts.config.on_stop) {
        settings.stop_policy = chosen;
    }
    if let Some(effort) = setup.reasoning_effort {
        let request = RequestSettings::clone(&settings.request).reasoning_effort(effort);
        settings.request = Arc::new(request);
    }
    settings.call_texts.clone_from(&setup.call_texts);
    settings.system = prompt.text();
    settings.answer.clone_from(&parts.answer);
    settings
}

pub(super) fn agent(
    parts: &SystemParts,
    setup: &SessionSetup,
    request: &AgentRequest,
    prompt: &ComposedPrompt,
    spill: &SpillFolder,
) -> Result<Agent, StartError> {
    // The opener of a session with its own tools or folder chooses all that the model can load.
    let has_definitions = setup.tools.is_none() && setup.folder.is_none();
    let skills = if has_definitions {
        &parts.definitions.skills
    } else {
        &setup.skills
    };
    let workspace = Arc::new(workspace_of(parts, setup, spill, skills)?);
    let output_folder = OutputFolder::new(spill.path()).within(Arc::clone(&parts.output_budget));
    let output_folder = Arc::new(output_folder);
    let mut shell = ShellConfig::new(workspace.folder(), Arc::clone(&output_folder));
    shell.containment = parts.containment.clone();
    shell.marker_prefix = marker_prefix(&request.session);
    shell.env_hidden = without_exempted(&parts.hidden_variables, &parts.config.shell.env);
    let host: Arc<dyn BackgroundHost> = Arc::clone(&request.background) as _;
    let mut tools = ToolRegistry::new();
    let mut builtin = builtin_tools(&workspace, shell, &host);
    let mut source: Arc<dyn ToolSource> = Arc::new(parts.mcp.tools(&output_folder));
    if let Some(servers) = &setup.servers {
        source = Arc::new(JoinedTools([
            source,
            Arc::new(servers.tools(&output_folder)),
        ]));
    }
    if let Some(choice) = &setup.tools {
        builtin = choice.builtin(builtin);
        source = choice.source(source, Arc::clone(&request.on_late_answer));
    }
    for tool in builtin {
        tools.register_known(tool).map_err(bug)?;
    }
    if let Some(skill) = SkillTool::of(skills) {
        tools.register_known(Arc::new(skill)).map_err(bug)?;
    }
    let settings = settings_of(parts, setup, prompt);
    let configured = parts.config.permissions.mode;
    let mode = setup.mode.clone();
    let mode = mode.unwrap_or_else(|| ModeSwitch::new(configured));
    let permissions = Permissions::new(Arc::clone(&parts.policy))
        .in_mode(mode)
        .in_folder(workspace.folder());
    let model = setup.model.as_ref().unwrap_or(&parts.model);
    let mut builder = Agent::new(Arc::clone(model))
        .tools(tools)
        .tool_source(source)
        .settings(settings)
        .permissions(permissions, prompter_of(parts, setup, request))
        .clock(Arc::clone(&parts.now))
        .name(AGENT_NAME);
    if let Some(owner) = &parts.owner {
        builder = builder.owner(owner.clone());
    }
    if let Some(spans) = &parts.spans {
        builder = builder.spans(Arc::clone(spans));
    }
    let settings = CommandSettings {
        folder: workspace.folder().to_owned(),
        containment: parts.containment.clone(),
        event_folder: spill.path().to_owned(),
    };
    for hook in &setup.hooks {
        builder = builder.hook(Arc::clone(hook));
    }
    for hook in &parts.config.hooks {
        builder = builder.hook(Arc::new(CommandHook::new(hook, &settings)));
    }
    for guardrail in &parts.config.guardrails {
        builder = builder.guardrail(Arc::new(CommandGuardrail::new(guardrail, &settings)));
    }
    if setup
        .tools
        .as_ref()
        .is_some_and(|tools| !tools.has_sub_agents())
    {
        return Ok(builder.build());
    }
    let agents = &parts.config.agents;
    let sub_agents = SubAgents {
        limits: agents.limits(),
        excluded: agents
            .exclude
            .iter()
            .map(|tool| tool.as_str().into())
            .collect(),
        background: Some(SubAgentBackground {
            host,
            output_folder,
        }),
        kinds: if has_definitions {
            Arc::clone(&parts.sub_agent_kinds)
        } else {
            Arc::clone(&setup.sub_agents)
        },
        form: setup
            .tools
            .as_ref()
            .and_then(|tools| tools.sub_agent_form()),
    };
    builder.build().with_sub_agents(sub_agents).map_err(bug)
}

pub(super) fn bug(error: impl std::fmt::Display) -> StartError {
    StartError::new(StartErrorKind::Bug, error.to_string())
}

pub(super) fn stopped(refused: &NotStarted) -> StartError {
    StartError::stopped(refused)
}

pub(super) fn make_folder(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
