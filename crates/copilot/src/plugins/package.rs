//! The content of a plugin that a session uses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allstop_runtime::{DefinitionFiles, Definitions};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::folder::PluginFolder;
use super::manifest::{MANIFEST, PluginManifest, paths};
use crate::client_parts::ClientServer;

/// File with the MCP servers of a plugin whose manifest names none.
const SERVERS: &str = ".mcp.json";

/// Folders of the skills and agents of a plugin whose manifest names none.
const SKILLS: &str = "skills";
const AGENTS: &str = "agents";

/// File of a skill. A plugin with one skill may have it in its own folder.
const SKILL_FILE: &str = "SKILL.md";

/// Texts in the settings of a server that stand for the folder of its plugin.
const ROOT_VARIABLES: [&str; 3] = [
    "${PLUGIN_ROOT}",
    "${COPILOT_PLUGIN_ROOT}",
    "${CLAUDE_PLUGIN_ROOT}",
];

/// A plugin that was read from its folder. Reading it starts nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plugin {
    pub(crate) name: String,
    /// Folder of the plugin, without links.
    pub(crate) root: PathBuf,
    pub(crate) version: Option<String>,
    pub(crate) servers: BTreeMap<String, ClientServer>,
    /// Skills and agents.
    pub(crate) definitions: DefinitionFiles,
    /// A line for each part that has no effect.
    pub(crate) warnings: Vec<String>,
}

#[derive(Deserialize)]
struct ServerFile {
    #[serde(rename = "mcpServers")]
    servers: Map<String, Value>,
}

impl Plugin {
    /// Reads the plugin in a folder. Blocks the thread. The error is the reason, for people.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let folder = PluginFolder::open(folder)?;
        let manifest = PluginManifest::find(&folder)?;
        let manifest = manifest.ok_or_else(|| {
            let root = folder.root.display();
            format!("the folder {root} is no plugin: it has no {MANIFEST}")
        })?;
        let (name, wrong) = (manifest.name.clone(), |error| {
            format!("the plugin in {}: {error}", folder.root.display())
        });
        let definitions = definitions(&folder, &manifest).map_err(wrong)?;
        let (servers, mut warnings) = servers(&folder, &manifest).map_err(wrong)?;
        let parts = manifest.not_offered();
        let parts = parts.map(|part| format!("`{part}` of the plugin {name:?} is not offered"));
        warnings.extend(parts);
        Ok(Self {
            name,
            root: folder.root,
            version: manifest.version,
            servers,
            definitions,
            warnings,
        })
    }

    /// Number of usable skills.
    pub(crate) fn skill_count(&self) -> usize {
        Definitions::parse([&self.definitions]).skills.len()
    }
}

fn definitions(
    folder: &PluginFolder,
    manifest: &PluginManifest,
) -> Result<DefinitionFiles, String> {
    let root = &folder.root;
    let mut skills = folders(folder, "skills", &manifest.skills, SKILLS)?;
    if root.join(SKILL_FILE).symlink_metadata().is_ok() && !skills.contains(root) {
        skills.insert(0, root.clone());
    }
    let agents = folders(folder, "agents", &manifest.agents, AGENTS)?;
    let mut found = DefinitionFiles::of_plugin(root, &skills, &agents);
    // The name of the folder of a copy has no meaning.
    for file in &mut found.files {
        if file.path.parent() == Some(root) {
            file.name.clone_from(&manifest.name);
        }
    }
    Ok(found)
}

/// Returns the folders that a field of the manifest names, or else the usual one.
fn folders(
    folder: &PluginFolder,
    field: &str,
    value: &Value,
    usual: &str,
) -> Result<Vec<PathBuf>, String> {
    match paths(field, value)? {
        Some(named) => named
            .into_iter()
            .map(|path| folder.inside(field, path))
            .collect(),
        None if folder.root.join(usual).symlink_metadata().is_ok() => {
            Ok(vec![folder.inside(field, usual)?])
        }
        None => Ok(Vec::new()),
    }
}

/// Returns the usable servers, and a line for each other server.
fn servers(
    folder: &PluginFolder,
    manifest: &PluginManifest,
) -> Result<(BTreeMap<String, ClientServer>, Vec<String>), String> {
    let configs = match &manifest.mcp_servers {
        Value::Object(servers) => servers.clone(),
        Value::Null => server_file(folder, SERVERS)?.unwrap_or_default(),
        Value::String(path) => {
            let path = folder.inside("mcpServers", path)?;
            let path = folder.relative(&path)?;
            server_file(folder, path)?.unwrap_or_default()
        }
        _ => return Err("`mcpServers` is neither a path nor an object".to_owned()),
    };
    let (mut servers, mut warnings) = (BTreeMap::new(), Vec::new());
    for (name, config) in configs {
        match server(folder, config) {
            Ok(server) if !name.is_empty() => drop(servers.insert(name, server)),
            Ok(_unnamed) => warnings.push(left_out(manifest, &name, "its name is empty")),
            Err(reason) => warnings.push(left_out(manifest, &name, &reason)),
        }
    }
    Ok((servers, warnings))
}

fn left_out(manifest: &PluginManifest, server: &str, reason: &str) -> String {
    let plugin = &manifest.name;
    format!("the MCP server {server:?} of the plugin {plugin:?} is left out: {reason}")
}

fn server_file(folder: &PluginFolder, path: &str) -> Result<Option<Map<String, Value>>, String> {
    let file: Option<ServerFile> = folder.read_json(path)?;
    Ok(file.map(|file| file.servers))
}

/// Reads a server. Its relative paths are paths in the plugin, because a session runs the server in another folder.
fn server(folder: &PluginFolder, mut config: Value) -> Result<ClientServer, String> {
    insert_root(&mut config, &folder.root.display().to_string());
    let Value::Object(mut config) = config else {
        return Err("it is not a JSON object".to_owned());
    };
    for field in ["command", "cwd"] {
        let Some(Value::String(path)) = config.get_mut(field) else {
            continue;
        };
        let is_name = field == "command" && !path.contains('/');
        if !is_name && !Path::new(path).is_absolute() {
            *path = folder.inside(field, path)?.display().to_string();
        }
    }
    ClientServer::of_plugin(&config)
}

/// Replaces the texts that stand for the folder of the plugin.
fn insert_root(value: &mut Value, root: &str) {
    match value {
        Value::String(text) => {
            for variable in ROOT_VARIABLES {
                *text = text.replace(variable, root);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|value| insert_root(value, root)),
        Value::Object(all) => all.values_mut().for_each(|value| insert_root(value, root)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::client_parts::EnvValueMode;

    fn read(files: &[(&str, &str)]) -> (Result<Plugin, String>, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (Plugin::read(&root), root)
    }

    const SKILL: &str = "---\ndescription: Greets.\n---\nHello.";

    #[test]
    fn parts_of_a_plugin_are_found() {
        let servers = r#"{"mcpServers": {
            "a": {"command": "./run", "args": ["${CLAUDE_PLUGIN_ROOT}/x", "${HOME}"]},
            "b": {"command": "sh", "later": true}
        }}"#;
        let agent = "---\ndescription: Reviews.\n---\nReview.";
        let (plugin, root) = read(&[
            (
                "plugin.json",
                r#"{"name": "p", "version": "1.0.0", "hooks": "h.json"}"#,
            ),
            ("SKILL.md", SKILL),
            ("skills/greet/SKILL.md", SKILL),
            ("agents/reviewer.agent.md", agent),
            (".mcp.json", servers),
            ("run", ""),
        ]);
        let plugin = plugin.unwrap();
        assert_eq!(plugin.skill_count(), 2);
        let all = Definitions::parse([&plugin.definitions]);
        assert!(all.skills.contains_key("p") && all.agents.contains_key("reviewer"));
        let server = plugin.servers["a"].named("a", EnvValueMode::Direct).section;
        let path = |name: &str| root.join(name).display().to_string();
        assert_eq!(server.command, Some(path("run")));
        assert_eq!(server.args, [path("x"), "${HOME}".to_owned()]);
        assert!(server.expands_variables);
        let warnings = plugin.warnings.join("\n");
        assert!(
            warnings.contains("`config.later`") && warnings.contains("`hooks`"),
            "{warnings}"
        );
    }

    #[test]
    fn bad_manifests_are_refused() {
        for (manifest, reason) in [
            ("{", "EOF"),
            ("[]", "not a JSON object"),
            ("{}", "name"),
            (r#"{"name": "../x"}"#, "letters"),
            (r#"{"name": "p", "skills": "../x"}"#, "below the folder"),
            (r#"{"name": "p", "agents": ["/etc"]}"#, "below the folder"),
            (r#"{"name": "p", "skills": 3}"#, "neither a path"),
            (
                r#"{"name": "p", "mcpServers": "../x.json"}"#,
                "below the folder",
            ),
            (r#"{"name": "p", "mcpServers": []}"#, "neither a path"),
        ] {
            let (refused, _) = read(&[("plugin.json", manifest)]);
            let refused = refused.unwrap_err();
            assert!(refused.contains(reason), "{manifest}: {refused}");
        }
        let (refused, _) = read(&[("README.md", "")]);
        assert!(refused.unwrap_err().contains("no plugin.json"));
        let long = format!(
            r#"{{"name": "p", "description": "{}"}}"#,
            "a".repeat(1024 * 1024)
        );
        let (refused, _) = read(&[("plugin.json", &long)]);
        assert!(refused.unwrap_err().contains("expected at most"));
    }
}
