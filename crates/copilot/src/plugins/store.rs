//! The folder with the copies of installed plugins.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use allstop_host::replace_file;
use ulid::Ulid;

use super::catalog::Catalog;
use super::copy::copy;
use super::folder::PluginFolder;
use super::manifest::{MANIFEST, PluginManifest};
use super::package::Plugin;
use super::stored::{PluginOrigin, StoredPlugins};

/// Name of the folder, next to the file with the settings.
const FOLDER: &str = "plugins";

/// The folder. Each copy has a new name, so no installation changes the files of another one.
#[derive(Debug, Clone)]
pub(crate) struct PluginStore {
    folder: PathBuf,
}

impl PluginStore {
    /// The folder next to this file with settings.
    pub(crate) fn beside(settings: &Path) -> Self {
        Self {
            folder: settings.with_file_name(FOLDER),
        }
    }

    /// Folder of a copy.
    pub(crate) fn folder_of(&self, copy: &str) -> PathBuf {
        self.folder.join(copy)
    }

    /// Copies a plugin from its origin. Returns the name of the copy, and the plugin in the copy. A failure leaves no copy.
    /// Blocks the thread. The error is the reason, for people.
    pub(super) fn add(
        &self,
        origin: &PluginOrigin,
        plugin: Option<&str>,
        stored: &StoredPlugins,
    ) -> Result<(String, Plugin), String> {
        let (source, entry) = match (origin, plugin) {
            (PluginOrigin::Marketplace(marketplace), Some(plugin)) => {
                let folder = stored.marketplace(marketplace)?;
                let (source, entry) = Catalog::find(folder, plugin)?;
                (source, Some(entry))
            }
            (PluginOrigin::Marketplace(_), None) => return Err("the plugin has no name".to_owned()),
            (PluginOrigin::Folder(source), _) => (source.clone(), None),
        };
        let name = Ulid::generate().to_string();
        let to = self.folder_of(&name);
        let added = add(&source, entry.as_ref(), &to);
        if added.is_err() {
            let _absent_or_left = fs::remove_dir_all(&to);
        }
        added.map(|plugin| (name, plugin))
    }

    /// Removes the copies that no installed plugin uses, also those of interrupted installations. Blocks the thread.
    ///
    /// # Errors
    /// Returns the first error. The other copies are still removed.
    pub(crate) fn remove_unused(&self, stored: &StoredPlugins) -> Result<(), String> {
        let used: HashSet<&str> = stored.copies().collect();
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(format!("{}: {error}", self.folder.display())),
        };
        let unused = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            name.to_str().is_none_or(|name| !used.contains(name))
        });
        let removed = unused.map(|entry| {
            let removed = fs::remove_dir_all(entry.path());
            removed.map_err(|error| format!("{}: {error}", entry.path().display()))
        });
        removed.fold(Ok(()), Result::and)
    }
}

/// Copies a plugin into the folder `to`, and reads the copy.
fn add(source: &Path, entry: Option<&PluginManifest>, to: &Path) -> Result<Plugin, String> {
    let folder = PluginFolder::open(source)?;
    let manifest = PluginManifest::find(&folder)?;
    if let (Some(manifest), Some(entry)) = (&manifest, entry)
        && manifest.name != entry.name
    {
        let (listed, own) = (&entry.name, &manifest.name);
        return Err(format!(
            "the marketplace lists the plugin as {listed:?}, but its manifest has the name {own:?}"
        ));
    }
    copy(&folder, to)?;
    if let (None, Some(entry)) = (manifest, entry) {
        // A catalog may describe a plugin without a manifest.
        let text = serde_json::to_string_pretty(entry).map_err(|error| error.to_string())?;
        let written = replace_file(&to.join(MANIFEST), &text);
        written.map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Plugin::read(to)
}
