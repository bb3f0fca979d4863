//! A plugin of an open session.

use super::package::Plugin;

/// A plugin whose parts a session uses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SessionPlugin {
    pub(crate) plugin: Plugin,
    /// Name of the marketplace. Empty for a plugin of a folder.
    pub(crate) marketplace: String,
    /// Name of the copy of an installed plugin. `None` if a client named the folder of the plugin for this session.
    pub(crate) copy: Option<String>,
}
