//! The plugins that a session uses: the installed and enabled ones, and those in the folders that a client names.

use std::collections::BTreeSet;
use std::path::PathBuf;

use allstop_core::receipt::ItemKind;
use allstop_runtime::{StartError, StartErrorKind, System};
use allstop_scope::WorkSpec;

use super::SessionChoice;
use crate::client_parts::{ClientParts, EnvValueMode, server_name};
use crate::plugins::{Plugin, PluginStore, SessionPlugin, StoredPlugins};
use crate::server::CopilotServer;

/// A plugin before it is read.
struct PluginPlace {
    folder: PathBuf,
    marketplace: String,
    copy: Option<String>,
}

/// Reads the plugins of a session. An unusable plugin is left out, with a warning for the clients.
///
/// # Errors
/// Returns an error if the settings cannot be read.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn add_plugins(
    server: &CopilotServer,
    choice: &mut SessionChoice,
) -> Result<(), StartError> {
    let stored = server.settings().read().await;
    let stored = stored.map_err(|error| StartError {
        kind: StartErrorKind::Config,
        message: error.message,
        hint: None,
    })?;
    let store = server.settings().plugin_store().ok();
    let places = places(
        &stored.plugins,
        store.as_ref(),
        &choice.parts.plugin_folders,
    );
    let spec = WorkSpec::new(ItemKind::Thread, "reading plugins");
    let reading = server.connections().spawn_blocking(spec, |_| {
        let mut warnings = Vec::new();
        let plugins = places.into_iter();
        let plugins = plugins.filter_map(|place| plugin(place, &mut warnings));
        (plugins.collect::<Vec<_>>(), warnings)
    });
    let reading = reading.map_err(|refused| StartError::stopped(&refused))?;
    // A panic of the reader is a bug, and the session then has no plugins.
    let (mut plugins, mut warnings) = reading.await.unwrap_or_default();
    leave_out_servers(server.system(), &choice.parts, &mut plugins, &mut warnings);
    choice.parts.plugins = plugins;
    for warning in warnings {
        // A reopened session has the warnings of its earlier opening.
        if !choice.not_offered.iter().any(|known| **known == *warning) {
            choice.not_offered.push(warning.into());
        }
    }
    Ok(())
}

/// Folders of the plugins. The folders that a client names come first, so their parts have precedence.
fn places(
    stored: &StoredPlugins,
    store: Option<&PluginStore>,
    named: &[PathBuf],
) -> Vec<PluginPlace> {
    let named = named.iter().map(|folder| PluginPlace {
        folder: folder.clone(),
        marketplace: String::new(),
        copy: None,
    });
    let installed = stored.installed.iter().filter(|plugin| plugin.is_enabled);
    let installed = installed.filter_map(|plugin| {
        Some(PluginPlace {
            folder: store?.folder_of(&plugin.copy),
            marketplace: plugin.marketplace().to_owned(),
            copy: Some(plugin.copy.clone()),
        })
    });
    named.chain(installed).collect()
}

fn plugin(place: PluginPlace, warnings: &mut Vec<String>) -> Option<SessionPlugin> {
    if !place.folder.is_absolute() {
        let folder = place.folder.display();
        warnings.push(format!(
            "the plugin in `{folder}` is left out: use an absolute path in `pluginDirectories`"
        ));
        return None;
    }
    match Plugin::read(&place.folder) {
        Ok(plugin) => {
            warnings.extend(plugin.warnings.iter().cloned());
            Some(SessionPlugin {
                plugin,
                marketplace: place.marketplace,
                copy: place.copy,
            })
        }
        Err(reason) => {
            warnings.push(format!("a plugin is left out: {reason}"));
            None
        }
    }
}

/// Removes the servers that cannot be used, or whose name another server has.
fn leave_out_servers(
    system: &System,
    parts: &ClientParts,
    plugins: &mut [SessionPlugin],
    warnings: &mut Vec<String>,
) {
    let named = parts.named_servers();
    let configured = system.config().mcp.servers.keys().cloned();
    let of_clients = named.keys().map(|name| server_name(name).into_owned());
    let mut taken: BTreeSet<String> = configured.chain(of_clients).collect();
    for SessionPlugin { plugin, .. } in plugins {
        let of_plugin = &plugin.name;
        plugin.servers.retain(|name, server| {
            let one = server.named(name, EnvValueMode::Direct);
            let reason = if taken.contains(&one.name) {
                "another server has its name".to_owned()
            } else if let Err(error) = system.check_session_server(&one) {
                error.message
            } else {
                taken.insert(one.name);
                return true;
            };
            warnings.push(format!(
                "the MCP server {name:?} of the plugin {of_plugin:?} is left out: {reason}"
            ));
            false
        });
    }
}
