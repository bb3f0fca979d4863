//! The manifest of a plugin: `plugin.json`, or the entry of a catalog.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::folder::{PluginFolder, check_name};
use crate::provider::is_set;

/// The file that a copy gets if only the catalog describes the plugin.
pub(super) const MANIFEST: &str = "plugin.json";

/// Places of the manifest. The first file counts.
const MANIFESTS: [&str; 4] = [
    MANIFEST,
    ".plugin/plugin.json",
    ".github/plugin/plugin.json",
    ".claude-plugin/plugin.json",
];

/// Parts of a plugin that sessions do not offer.
const NOT_OFFERED: [&str; 4] = ["commands", "hooks", "lspServers", "extensions"];

/// A manifest. Keys of other tools have no effect.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PluginManifest {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// A path, or several.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) skills: Value,
    /// A path, or several.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) agents: Value,
    /// A path of a file, or the servers themselves.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) mcp_servers: Value,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl PluginManifest {
    /// Reads the manifest of a plugin; `None` if the folder has none.
    pub(super) fn find(folder: &PluginFolder) -> Result<Option<Self>, String> {
        let found: Option<Self> = folder.read_first(&MANIFESTS)?;
        if let Some(manifest) = &found {
            check_name("name", &manifest.name)
                .map_err(|error| format!("the manifest in {}: {error}", folder.root.display()))?;
        }
        Ok(found)
    }

    /// Parts of the plugin that sessions do not offer.
    pub(super) fn not_offered(&self) -> impl Iterator<Item = &'static str> {
        let is_named = |name: &&str| self.others.get(*name).is_some_and(is_set);
        NOT_OFFERED.into_iter().filter(is_named)
    }
}

/// Reads a path or a list of paths. `field` is its name in the manifest.
pub(super) fn paths<'a>(field: &str, value: &'a Value) -> Result<Option<Vec<&'a str>>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(path) => Ok(Some(vec![path])),
        Value::Array(all) => {
            let texts: Option<Vec<_>> = all.iter().map(Value::as_str).collect();
            let texts = texts.ok_or_else(|| format!("`{field}` has an entry that is no path"))?;
            Ok(Some(texts))
        }
        _ => Err(format!("`{field}` is neither a path nor a list of paths")),
    }
}
