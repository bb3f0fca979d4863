//! The catalog of a marketplace: `marketplace.json`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::folder::{PluginFolder, check_name};
use super::manifest::PluginManifest;
use super::source::remote;

/// Places of the catalog. The first file counts.
const CATALOGS: [&str; 4] = [
    "marketplace.json",
    ".plugin/marketplace.json",
    ".github/plugin/marketplace.json",
    ".claude-plugin/marketplace.json",
];

/// The plugins of a marketplace.
#[derive(Debug, Deserialize)]
pub(crate) struct Catalog {
    pub(crate) name: String,
    plugins: Vec<CatalogEntry>,
}

/// A plugin of a marketplace. The entry is also the manifest of a plugin without one.
#[derive(Debug, Deserialize)]
struct CatalogEntry {
    #[serde(default)]
    source: Value,
    #[serde(flatten)]
    manifest: PluginManifest,
}

impl Catalog {
    /// Reads the catalog of a folder. The error is the reason, for people.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        Self::open(folder).map(|(_, catalog)| catalog)
    }

    fn open(folder: &Path) -> Result<(PluginFolder, Self), String> {
        let folder = PluginFolder::open(folder)?;
        let catalog: Option<Self> = folder.read_first(&CATALOGS)?;
        let root = folder.root.display();
        let catalog = catalog.ok_or_else(|| {
            format!(
                "the folder {root} is no marketplace: it has no {}",
                CATALOGS[0]
            )
        })?;
        let wrong = |error| format!("the marketplace in {root}: {error}");
        check_name("name", &catalog.name).map_err(wrong)?;
        let mut names = HashSet::new();
        for CatalogEntry { manifest, .. } in &catalog.plugins {
            check_name("plugins.name", &manifest.name).map_err(wrong)?;
            if !names.insert(&manifest.name) {
                return Err(wrong(format!("it has two plugins {:?}", manifest.name)));
            }
        }
        Ok((folder, catalog))
    }

    /// Names and descriptions of the plugins.
    pub(crate) fn plugins(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let all = self.plugins.iter().map(|entry| &entry.manifest);
        all.map(|plugin| (plugin.name.as_str(), plugin.description.as_deref()))
    }

    /// Returns the folder of a plugin in the marketplace of a folder, and the entry of the plugin.
    pub(super) fn find(folder: &Path, name: &str) -> Result<(PathBuf, PluginManifest), String> {
        let (folder, catalog) = Self::open(folder)?;
        let mut entries = catalog.plugins.into_iter();
        let found = entries.find(|entry| entry.manifest.name == name);
        let entry = found.ok_or_else(|| {
            let marketplace = &catalog.name;
            format!(
                "the marketplace {marketplace:?} has no plugin {name:?}: `plugins.marketplaces.browse` lists its plugins"
            )
        })?;
        let Value::String(source) = &entry.source else {
            return Err(remote(&format!("the source of the plugin {name:?}")));
        };
        let place = folder.inside("plugins.source", source)?;
        Ok((place, entry.manifest))
    }
}
