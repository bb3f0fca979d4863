//! The installed plugins and the marketplaces, as the settings of the server contain them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::package::Plugin;
use super::source::remote;
use super::store::PluginStore;

/// Name of the marketplace that programs expect in each list. It is on GitHub. A local copy of it takes its place.
pub(crate) const DEFAULT_MARKETPLACE: &str = "copilot-plugins";

/// Maximum number of installed plugins, which each session reads when it opens.
const PLUGINS_MAX: usize = 64;

/// Number of bytes of a digest that identifies the folder of a plugin.
const SOURCE_ID_BYTES: usize = 16;

/// Origin of an installed plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PluginOrigin {
    /// Name of the marketplace.
    Marketplace(String),
    /// A folder that the user has named.
    Folder(PathBuf),
}

/// A marketplace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Marketplace {
    pub(crate) folder: PathBuf,
}

/// An installed plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct InstalledPlugin {
    pub(crate) name: String,
    pub(crate) origin: PluginOrigin,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) version: Option<String>,
    #[serde(rename = "enabled")]
    pub(crate) is_enabled: bool,
    /// Name of the copy in the [`PluginStore`].
    pub(crate) copy: String,
}

/// Plugins and marketplaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct StoredPlugins {
    pub(crate) installed: Vec<InstalledPlugin>,
    pub(crate) marketplaces: BTreeMap<String, Marketplace>,
}

/// Reference of a client to an installed plugin: `PLUGIN`, `PLUGIN@MARKETPLACE`, or a name with the id of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PluginId {
    name: String,
    marketplace: Option<String>,
    source_id: Option<String>,
}

impl PluginId {
    pub(crate) fn new(text: &str, source_id: Option<String>) -> Self {
        let (name, marketplace) = match text.rsplit_once('@') {
            Some((name, marketplace)) => (name, Some(marketplace.to_owned())),
            None => (text, None),
        };
        Self {
            name: name.to_owned(),
            marketplace,
            source_id,
        }
    }

    /// Reference to this plugin alone.
    pub(crate) fn of(plugin: &InstalledPlugin) -> Self {
        Self {
            name: plugin.name.clone(),
            marketplace: Some(plugin.marketplace().to_owned()),
            source_id: plugin.source_id(),
        }
    }

    fn means(&self, plugin: &InstalledPlugin) -> bool {
        let is_of = |marketplace: &String| plugin.marketplace() == marketplace;
        self.name == plugin.name
            && self.marketplace.as_ref().is_none_or(is_of)
            && (self.source_id.is_none() || self.source_id == plugin.source_id())
    }
}

impl InstalledPlugin {
    /// Name of the marketplace. Empty for a plugin of a folder.
    pub(crate) fn marketplace(&self) -> &str {
        match &self.origin {
            PluginOrigin::Marketplace(name) => name,
            PluginOrigin::Folder(_) => "",
        }
    }

    /// Id of the folder from which the user has installed the plugin; `None` for a plugin of a marketplace.
    pub(crate) fn source_id(&self) -> Option<String> {
        let PluginOrigin::Folder(folder) = &self.origin else {
            return None;
        };
        let digest = Sha256::digest(folder.as_os_str().as_bytes());
        let mut id = String::new();
        for byte in digest.iter().take(SOURCE_ID_BYTES) {
            let _infallible = write!(id, "{byte:02x}");
        }
        Some(id)
    }
}

impl StoredPlugins {
    pub(crate) fn is_empty(&self) -> bool {
        self.installed.is_empty() && self.marketplaces.is_empty()
    }

    /// Names of the copies that plugins use.
    pub(super) fn copies(&self) -> impl Iterator<Item = &str> {
        self.installed.iter().map(|plugin| plugin.copy.as_str())
    }

    /// True if this copy is the one of an enabled plugin.
    pub(crate) fn has_enabled(&self, copy: &str) -> bool {
        let mut all = self.installed.iter();
        all.any(|plugin| plugin.is_enabled && plugin.copy == copy)
    }

    /// Returns the folder of a marketplace. The error is the reason, for people.
    pub(crate) fn marketplace(&self, name: &str) -> Result<&Path, String> {
        match self.marketplaces.get(name) {
            Some(marketplace) => Ok(&marketplace.folder),
            None if name == DEFAULT_MARKETPLACE => {
                Err(remote(&format!("the marketplace {name:?}")))
            }
            None => Err(format!(
                "the marketplace {name:?} is unknown: add it with `plugins.marketplaces.add`"
            )),
        }
    }

    /// Adds a marketplace.
    pub(crate) fn add_marketplace(&mut self, name: &str, folder: PathBuf) -> Result<(), String> {
        if let Some(known) = self.marketplaces.get(name)
            && known.folder != folder
        {
            let known = known.folder.display();
            return Err(format!(
                "the marketplace {name:?} exists, in {known}: remove it first"
            ));
        }
        self.marketplaces
            .insert(name.to_owned(), Marketplace { folder });
        Ok(())
    }

    /// Removes a marketplace. Its installed plugins prevent this, and are returned, unless `force` removes them too.
    pub(crate) fn remove_marketplace(
        &mut self,
        name: &str,
        force: bool,
    ) -> Result<Vec<InstalledPlugin>, String> {
        if name == DEFAULT_MARKETPLACE && !self.marketplaces.contains_key(name) {
            return Err(format!(
                "the marketplace {name:?} is in the list of every server, and cannot be removed"
            ));
        }
        self.marketplace(name)?;
        let is_of = |plugin: &InstalledPlugin| plugin.marketplace() == name;
        let installed = self.installed.iter().filter(|plugin| is_of(plugin));
        let dependent: Vec<_> = installed.cloned().collect();
        if dependent.is_empty() || force {
            self.installed.retain(|plugin| !is_of(plugin));
            self.marketplaces.remove(name);
        }
        Ok(dependent)
    }

    /// Installs a plugin. `name` is its name in a marketplace. Blocks the thread.
    pub(crate) fn install(
        &mut self,
        origin: PluginOrigin,
        name: Option<&str>,
        store: &PluginStore,
    ) -> Result<(InstalledPlugin, Plugin), String> {
        if self.installed.len() >= PLUGINS_MAX {
            return Err(format!(
                "{PLUGINS_MAX} plugins are installed, which is the limit: uninstall one first"
            ));
        }
        let is_same = |plugin: &&InstalledPlugin| {
            plugin.origin == origin && name.is_none_or(|name| name == plugin.name)
        };
        if let Some(InstalledPlugin { name, .. }) = self.installed.iter().find(is_same) {
            return Err(format!(
                "the plugin {name:?} is installed: update it, or uninstall it first"
            ));
        }
        let (copy, plugin) = store.add(&origin, name, self)?;
        let installed = InstalledPlugin {
            name: plugin.name.clone(),
            origin,
            version: plugin.version.clone(),
            is_enabled: true,
            copy,
        };
        self.installed.push(installed.clone());
        Ok((installed, plugin))
    }

    /// Copies a plugin again from its origin. Returns the earlier state of the plugin, and its new content. Blocks the
    /// thread.
    pub(crate) fn update(
        &mut self,
        id: &PluginId,
        store: &PluginStore,
    ) -> Result<(InstalledPlugin, Plugin), String> {
        let before = self.find(id)?.clone();
        let (copy, plugin) = store.add(&before.origin, Some(&before.name), self)?;
        let all = self.installed.iter_mut();
        for installed in all.filter(|plugin| plugin.copy == before.copy) {
            installed.name.clone_from(&plugin.name);
            installed.version.clone_from(&plugin.version);
            installed.copy.clone_from(&copy);
        }
        Ok((before, plugin))
    }

    /// Removes a plugin, and returns it.
    pub(crate) fn uninstall(&mut self, id: &PluginId) -> Result<InstalledPlugin, String> {
        let removed = self.find(id)?.clone();
        self.installed.retain(|plugin| plugin.copy != removed.copy);
        Ok(removed)
    }

    /// Enables or disables plugins of marketplaces. Unknown names have no effect, as the protocol requires. Returns the
    /// copies of the disabled plugins.
    pub(crate) fn switch(
        &mut self,
        names: &[String],
        is_enabled: bool,
    ) -> Result<Vec<String>, String> {
        let mut copies = Vec::new();
        for name in names {
            let id = PluginId::new(name, None);
            let meant = self.installed.iter_mut().filter(|plugin| id.means(plugin));
            let meant: Vec<_> = meant.collect();
            let is_direct = |plugin: &&mut InstalledPlugin| plugin.marketplace().is_empty();
            if !is_enabled && !meant.is_empty() && meant.iter().all(is_direct) {
                return Err(format!(
                    "the plugin {name:?} was installed from a folder, so it is always enabled: uninstall it instead"
                ));
            }
            for plugin in meant.into_iter().filter(|plugin| !is_direct(plugin)) {
                plugin.is_enabled = is_enabled;
                copies.extend((!is_enabled).then(|| plugin.copy.clone()));
            }
        }
        Ok(copies)
    }

    fn find(&self, id: &PluginId) -> Result<&InstalledPlugin, String> {
        let mut meant = self.installed.iter().filter(|plugin| id.means(plugin));
        let name = &id.name;
        match (meant.next(), meant.next()) {
            (Some(plugin), None) => Ok(plugin),
            (None, _) => Err(format!(
                "the plugin {name:?} is not installed: `plugins.list` lists the installed plugins"
            )),
            (Some(_), Some(_)) => Err(format!(
                "several installed plugins have the name {name:?}: use PLUGIN@MARKETPLACE, or `directSourceId`"
            )),
        }
    }
}
