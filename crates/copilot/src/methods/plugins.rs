//! `plugins.*`: plugins of every session, which a user installs.

use std::path::PathBuf;

use allstop_host::finish_work;
use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, MethodResult, later, read, whole};
use crate::plugins::{
    InstalledPlugin, Plugin, PluginId, PluginOrigin, PluginSource, PluginStore, StoredPlugins,
};
use crate::server::CopilotServer;

/// Warning after the installation of a plugin from a folder, in the words that programs expect.
const DIRECT_IS_DEPRECATED: &str = "The installation of a plugin from a folder is deprecated: add its marketplace with \
    `plugins.marketplaces.add`, and install PLUGIN@MARKETPLACE.";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PluginParams {
    source: Option<String>,
    working_directory: Option<PathBuf>,
    name: Option<String>,
    direct_source_id: Option<String>,
    #[serde(default)]
    names: Vec<String>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: PluginParams = read(params)?;
    let server = cx.server.clone();
    let id = || match &params.name {
        Some(name) => Ok(PluginId::new(name, params.direct_source_id.clone())),
        None => Err(RpcError::invalid_params("`name` is missing")),
    };
    match method {
        "plugins.list" => Ok(later(async move {
            let stored = server.settings().read().await?.plugins;
            let infos = stored.installed.iter().map(info);
            Ok(json!({ "plugins": infos.collect::<Vec<_>>() }))
        })),
        "plugins.install" => {
            let source = params.source.as_deref();
            let source = source.ok_or_else(|| RpcError::invalid_params("`source` is missing"))?;
            let folder = cx.server.system().folder();
            let folder = folder.join(params.working_directory.unwrap_or_default());
            let source = PluginSource::parse(source, &folder).map_err(RpcError::invalid_params)?;
            Ok(finished(
                cx,
                "installation of a plugin",
                install(server, source),
            ))
        }
        "plugins.uninstall" => {
            let uninstalling = uninstall(server, id()?);
            Ok(finished(cx, "removal of a plugin", uninstalling))
        }
        "plugins.update" => {
            let updating = update(server, id()?);
            Ok(finished(cx, "update of a plugin", updating))
        }
        "plugins.updateAll" => Ok(finished(cx, "update of plugins", update_all(server))),
        "plugins.enable" | "plugins.disable" => {
            let is_enabled = method == "plugins.enable";
            let switching = switch(server, params.names, is_enabled);
            Ok(finished(cx, "switch of plugins", switching))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

/// Returns the answer of a change, which a disconnect of the client does not interrupt: the servers of a removed plugin
/// must end.
pub(super) fn finished(
    cx: &MethodCx<'_>,
    name: &str,
    change: impl Future<Output = MethodResult> + Send + 'static,
) -> MethodAnswer {
    let work = finish_work(cx.server.connections(), name.to_owned(), change);
    later(async move { whole(work).await? })
}

/// Changes the plugins in the settings.
pub(super) async fn change<T: Send + 'static>(
    server: &CopilotServer,
    change: impl FnOnce(&mut StoredPlugins, &PluginStore) -> Result<T, String> + Send + 'static,
) -> Result<T, RpcError> {
    let file = server.settings();
    let store = file.plugin_store()?;
    file.change(move |settings| {
        change(&mut settings.plugins, &store).map_err(RpcError::invalid_params)
    })
    .await
}

/// Ends the servers of plugins that are no longer used in the open sessions, and removes unused copies.
pub(super) async fn end_unused(server: &CopilotServer, copies: &[String]) {
    for session in server.open_sessions() {
        if let Some(servers) = session.plugin_servers() {
            servers.end(|copy| copies.iter().any(|over| over == copy));
        }
    }
    server.settings().remove_unused_plugins().await;
}

async fn install(server: CopilotServer, source: PluginSource) -> MethodResult {
    let (origin, name) = match source {
        PluginSource::Marketplace {
            plugin,
            marketplace,
        } => (PluginOrigin::Marketplace(marketplace), Some(plugin)),
        PluginSource::Folder(folder) => (PluginOrigin::Folder(folder), None),
    };
    let installing = move |stored: &mut StoredPlugins, store: &PluginStore| {
        stored.install(origin, name.as_deref(), store)
    };
    let (installed, plugin) = change(&server, installing).await?;
    let mut answer = json!({
        "plugin": info(&installed),
        "skillsInstalled": plugin.skill_count(),
    });
    if !plugin.warnings.is_empty() {
        answer["postInstallMessage"] = plugin.warnings.join("\n").into();
    }
    if installed.marketplace().is_empty() {
        answer["deprecationWarning"] = DIRECT_IS_DEPRECATED.into();
    }
    Ok(answer)
}

async fn uninstall(server: CopilotServer, id: PluginId) -> MethodResult {
    let removed = change(&server, move |stored, _| stored.uninstall(&id)).await?;
    end_unused(&server, &[removed.copy]).await;
    Ok(json!({}))
}

/// Copies a plugin again. Returns its earlier state and its new content.
async fn updated(
    server: &CopilotServer,
    id: PluginId,
) -> Result<(InstalledPlugin, Plugin), RpcError> {
    let updating = move |stored: &mut StoredPlugins, store: &PluginStore| stored.update(&id, store);
    let updated = change(server, updating).await?;
    end_unused(server, std::slice::from_ref(&updated.0.copy)).await;
    Ok(updated)
}

/// Describes an update in the form of the protocol.
fn update_info(before: &InstalledPlugin, plugin: &Plugin) -> Value {
    let mut answer = json!({ "skillsInstalled": plugin.skill_count() });
    let versions = [
        ("previousVersion", &before.version),
        ("newVersion", &plugin.version),
    ];
    for (name, version) in versions {
        if let Some(version) = version {
            answer[name] = version.as_str().into();
        }
    }
    answer
}

async fn update(server: CopilotServer, id: PluginId) -> MethodResult {
    let (before, plugin) = updated(&server, id).await?;
    Ok(update_info(&before, &plugin))
}

async fn update_all(server: CopilotServer) -> MethodResult {
    let stored = server.settings().read().await?.plugins;
    let mut results = Vec::new();
    for installed in &stored.installed {
        let updated = updated(&server, PluginId::of(installed)).await;
        let mut result = match &updated {
            Ok((before, plugin)) => update_info(before, plugin),
            Err(error) => json!({ "error": error.message }),
        };
        result["name"] = installed.name.as_str().into();
        result["marketplace"] = installed.marketplace().into();
        result["success"] = updated.is_ok().into();
        results.push(result);
    }
    Ok(json!({ "results": results }))
}

async fn switch(server: CopilotServer, names: Vec<String>, is_enabled: bool) -> MethodResult {
    let switching =
        move |stored: &mut StoredPlugins, _: &PluginStore| stored.switch(&names, is_enabled);
    let over = change(&server, switching).await?;
    end_unused(&server, &over).await;
    Ok(json!({}))
}

/// Describes an installed plugin in the form of the protocol.
fn info(plugin: &InstalledPlugin) -> Value {
    let mut info = json!({
        "name": plugin.name,
        "marketplace": plugin.marketplace(),
        "enabled": plugin.is_enabled,
    });
    let more = [
        ("version", plugin.version.clone()),
        ("directSourceId", plugin.source_id()),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            info[name] = value.into();
        }
    }
    info
}
