//! Plugins: folders with skills, agents and MCP servers.
//!
//! A user installs a plugin from a local folder, or from a marketplace, which is a local folder with a catalog of plugins.
//! An installed plugin is a copy in the folder of the settings, so a later change of its source has no effect on the
//! commands that sessions run. A program may also name folders with plugins for one session.

mod catalog;
mod copy;
mod folder;
mod manifest;
mod package;
mod session_plugin;
mod source;
mod store;
mod stored;

pub(crate) use catalog::Catalog;
pub(crate) use package::Plugin;
pub(crate) use session_plugin::SessionPlugin;
pub(crate) use source::{PluginSource, local_folder};
pub(crate) use store::PluginStore;
pub(crate) use stored::{
    DEFAULT_MARKETPLACE, InstalledPlugin, PluginId, PluginOrigin, StoredPlugins,
};
