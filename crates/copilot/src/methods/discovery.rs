//! MCP servers, skills, agents and instructions that a session would find: `mcp.discover`, `skills.*`, `agents.*` and
//! `instructions.*`. The skills and agents of a project are in folders of its working directory, which a session searches with
//! `enableConfigDiscovery`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_jsonrpc::RpcError;
use allstop_runtime::config::{McpJsonFile, McpServerSection, ProjectFileSearch};
use allstop_runtime::{DefinitionFiles, Definitions, ProjectInstructions, System};
use allstop_scope::WorkSpec;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, failed, later, read, ready};
use crate::client_parts::{AGENT_FOLDERS, ClientAgent, ClientServer, SKILL_FOLDERS};
use crate::plugins::{Plugin, PluginStore};
use crate::stored_settings::StoredSettings;

/// File with the instructions of a project.
const INSTRUCTIONS: &str = "AGENTS.md";

/// Maximum number of projects in a request. A client shows the projects of one window.
const PROJECTS_MAX: usize = 100;

/// Parameters of the methods. The options that exclude definitions of the user need no effect: a session has only its own
/// definitions and those of its project.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct DiscoveryParams {
    working_directory: Option<PathBuf>,
    project_paths: Vec<PathBuf>,
    skill_directories: Vec<PathBuf>,
    disabled_skills: BTreeSet<String>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: DiscoveryParams = read(params)?;
    if params.project_paths.len() > PROJECTS_MAX {
        let message = format!("more than {PROJECTS_MAX} `projectPaths`");
        return Err(RpcError::invalid_params(message));
    }
    let system = Arc::clone(cx.server.system());
    match method {
        "mcp.discover" => {
            let folder = params.working_directory;
            let store = cx.server.settings().plugin_store().ok();
            Ok(found(cx, move |stored| {
                let plugins = plugins(&stored, store.as_ref());
                let servers = servers(&system, &stored, &plugins, folder.as_deref());
                json!({ "servers": servers })
            }))
        }
        "skills.discover" => Ok(found(cx, move |stored| skills(&params, &stored))),
        "skills.getDiscoveryPaths" => {
            ready(json!({ "paths": paths(&params.project_paths, &SKILL_FOLDERS) }))
        }
        "skills.config.setDisabledSkills" => {
            let file = cx.server.settings().clone();
            Ok(later(async move {
                file.change(move |settings| {
                    settings.disabled_skills = params.disabled_skills;
                    Ok(())
                })
                .await?;
                Ok(json!({}))
            }))
        }
        "agents.discover" => Ok(found(cx, move |_| agents(&params.project_paths))),
        "agents.getDiscoveryPaths" => {
            ready(json!({ "paths": paths(&params.project_paths, &AGENT_FOLDERS) }))
        }
        "instructions.discover" => Ok(found(cx, move |_| instructions(&params.project_paths))),
        "instructions.getDiscoveryPaths" => {
            let paths = params.project_paths.iter().map(|project| {
                json!({
                    "path": project.join(INSTRUCTIONS),
                    "location": "working-directory",
                    "kind": "file",
                    "preferredForCreation": true,
                    "projectPath": project,
                })
            });
            ready(json!({ "paths": paths.collect::<Vec<_>>() }))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

/// Searches on a thread that may block.
fn found(
    cx: &MethodCx<'_>,
    search: impl FnOnce(StoredSettings) -> Value + Send + 'static,
) -> MethodAnswer {
    let (file, scope) = (
        cx.server.settings().clone(),
        cx.server.connections().clone(),
    );
    later(async move {
        let stored = file.read().await?;
        let spec = WorkSpec::new(ItemKind::Thread, "search for definitions");
        let searching = scope.spawn_blocking(spec, move |_| search(stored));
        let searching = searching.map_err(|refused| failed(&refused))?;
        searching.await.map_err(|error| failed(&error))
    })
}

/// Folders in the projects that a session searches. A client creates new files in the first one.
fn paths(projects: &[PathBuf], folders: &[&str]) -> Vec<Value> {
    let all = projects.iter().flat_map(|project| {
        folders.iter().enumerate().map(move |(index, folder)| {
            json!({
                "path": project.join(folder),
                "scope": "project",
                "preferredForCreation": index == 0,
                "projectPath": project,
            })
        })
    });
    all.collect()
}

/// Reads the enabled plugins. A session warns of the unusable ones.
fn plugins(stored: &StoredSettings, store: Option<&PluginStore>) -> Vec<Plugin> {
    let enabled = stored.plugins.installed.iter();
    let enabled = enabled.filter(|plugin| plugin.is_enabled);
    let read = enabled.filter_map(|plugin| Plugin::read(&store?.folder_of(&plugin.copy)).ok());
    read.collect()
}

fn servers(
    system: &System,
    stored: &StoredSettings,
    plugins: &[Plugin],
    folder: Option<&Path>,
) -> Vec<Value> {
    let info = |name: &str, is_remote: bool, source: &str, is_enabled: bool| {
        json!({
            "name": name,
            "type": if is_remote { "http" } else { "stdio" },
            "source": source,
            "enabled": is_enabled,
        })
    };
    let configured = &system.config().mcp.servers;
    let source = |section: &McpServerSection| {
        if section.expands_variables {
            "workspace"
        } else {
            "user"
        }
    };
    let mut all: BTreeMap<&str, Value> = BTreeMap::new();
    // A server of a project has an effect only after a person has trusted the file of the project. It is then a part of the
    // configuration.
    let project = folder.map(McpJsonFile::find);
    let project = match &project {
        Some(Ok(ProjectFileSearch::Found(file))) => Some(&file.servers),
        _ => None,
    };
    for (name, section) in project.into_iter().flatten() {
        let server = info(name, section.url.is_some(), "workspace", false);
        all.insert(name, server);
    }
    for (name, server) in plugins.iter().rev().flat_map(|plugin| &plugin.servers) {
        all.insert(name, info(name, server.is_remote(), "plugin", true));
    }
    for (name, config) in &stored.mcp_servers {
        let is_remote = ClientServer::stored(config).is_ok_and(|server| server.is_remote());
        let is_enabled = !stored.disabled_mcp_servers.contains(name);
        all.insert(name, info(name, is_remote, "user", is_enabled));
    }
    for (name, section) in configured {
        let server = info(name, section.url.is_some(), source(section), true);
        all.insert(name, server);
    }
    all.into_values().collect()
}

fn skills(params: &DiscoveryParams, stored: &StoredSettings) -> Value {
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    let mut errors = Vec::new();
    let mut add = |folders: &[PathBuf], project: Option<&Path>| {
        let read = Definitions::parse([&DefinitionFiles::of_skill_folders(folders)]);
        errors.extend(read.problems);
        for skill in read.skills.into_values() {
            let mut info = json!({
                "name": skill.name,
                "description": skill.description,
                "source": if project.is_some() { "project" } else { "custom" },
                "userInvocable": true,
                "enabled": !stored.disabled_skills.contains(&skill.name),
                "path": skill.path,
            });
            if let Some(project) = project {
                info["projectPath"] = json!(project);
            }
            found.entry(skill.name).or_insert(info);
        }
    };
    add(&params.skill_directories, None);
    for project in &params.project_paths {
        let folders = SKILL_FOLDERS.map(|folder| project.join(folder));
        add(&folders, Some(project));
    }
    let skills: Vec<_> = found.into_values().collect();
    json!({ "skills": skills, "errors": errors })
}

fn agents(projects: &[PathBuf]) -> Value {
    let all = projects.iter().flat_map(|project| {
        let folders = AGENT_FOLDERS.map(|folder| project.join(folder));
        let read = Definitions::parse([&DefinitionFiles::of_agent_folders(&folders)]);
        read.agents.into_values()
    });
    let infos = all.map(|agent| {
        let path = agent.path.clone();
        let mut info = ClientAgent::of_file(agent).info(true);
        info["path"] = json!(path);
        info["source"] = "project".into();
        info
    });
    json!({ "agents": infos.collect::<Vec<_>>() })
}

fn instructions(projects: &[PathBuf]) -> Value {
    let mut sources = Vec::new();
    for project in projects {
        let (root, found) = ProjectInstructions::around(project);
        for file in found.files {
            let path = root.join(&file.path);
            sources.push(json!({
                "id": path,
                "label": file.path,
                "sourcePath": path,
                "content": file.text,
                "type": "repo",
                "location": "repository",
                "projectPath": project,
            }));
        }
    }
    json!({ "sources": sources })
}
