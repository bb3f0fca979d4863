//! `plugins.marketplaces.*`: local folders with catalogs of plugins.

use std::path::{Path, PathBuf};

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, MethodResult, later, read};
use super::plugins::{change, end_unused, finished};
use crate::plugins::{Catalog, DEFAULT_MARKETPLACE, StoredPlugins, local_folder};
use crate::server::CopilotServer;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MarketplaceParams {
    source: Option<String>,
    working_directory: Option<PathBuf>,
    name: Option<String>,
    #[serde(default)]
    force: Option<bool>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: MarketplaceParams = read(params)?;
    let server = cx.server.clone();
    let file = cx.server.settings().clone();
    let name = params.name.clone();
    let name = move || name.ok_or_else(|| RpcError::invalid_params("`name` is missing"));
    match method {
        "plugins.marketplaces.list" => Ok(later(async move {
            Ok(json!({ "marketplaces": infos(&file.read().await?.plugins) }))
        })),
        "plugins.marketplaces.add" => {
            let source = params.source.as_deref();
            let source = source.ok_or_else(|| RpcError::invalid_params("`source` is missing"))?;
            let folder = cx.server.system().folder();
            let folder = folder.join(params.working_directory.unwrap_or_default());
            let folder = local_folder(source, &folder).map_err(RpcError::invalid_params)?;
            Ok(finished(cx, "new marketplace", add(server, folder)))
        }
        "plugins.marketplaces.remove" => {
            let removing = remove(server, name()?, params.force.unwrap_or(false));
            Ok(finished(cx, "removal of a marketplace", removing))
        }
        "plugins.marketplaces.browse" => {
            let name = name()?;
            Ok(later(file.look(move |settings| {
                browse(&settings.plugins, &name).map_err(RpcError::invalid_params)
            })))
        }
        "plugins.marketplaces.refresh" => Ok(later(file.look(move |settings| {
            refresh(&settings.plugins, params.name).map_err(RpcError::invalid_params)
        }))),
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

/// Describes all marketplaces in the form of the protocol.
fn infos(stored: &StoredPlugins) -> Vec<Value> {
    let added = stored.marketplaces.iter().map(|(name, marketplace)| {
        let folder = marketplace.folder.display();
        json!({ "name": name, "source": format!("Local: {folder}") })
    });
    let has_default = stored.marketplaces.contains_key(DEFAULT_MARKETPLACE);
    let default = (!has_default).then(|| {
        json!({
            "name": DEFAULT_MARKETPLACE,
            "source": format!("GitHub: github/{DEFAULT_MARKETPLACE}"),
            "isDefault": true,
        })
    });
    default.into_iter().chain(added).collect()
}

async fn add(server: CopilotServer, folder: PathBuf) -> MethodResult {
    let name = change(&server, move |stored, _| {
        let name = Catalog::read(&folder)?.name;
        stored.add_marketplace(&name, folder)?;
        Ok(name)
    });
    Ok(json!({ "name": name.await? }))
}

async fn remove(server: CopilotServer, name: String, force: bool) -> MethodResult {
    let removing = change(&server, move |stored, _| {
        stored.remove_marketplace(&name, force)
    });
    let dependent = removing.await?;
    if !dependent.is_empty() && !force {
        let names = dependent.iter().map(|plugin| plugin.name.as_str());
        let names: Vec<&str> = names.collect();
        return Ok(json!({ "removed": false, "dependentPlugins": names }));
    }
    let copies: Vec<String> = dependent.into_iter().map(|plugin| plugin.copy).collect();
    end_unused(&server, &copies).await;
    Ok(json!({ "removed": true }))
}

fn browse(stored: &StoredPlugins, name: &str) -> Result<Value, String> {
    let catalog = Catalog::read(stored.marketplace(name)?)?;
    let plugins = catalog.plugins().map(|(name, description)| {
        let mut info = json!({ "name": name });
        if let Some(description) = description {
            info["description"] = description.into();
        }
        info
    });
    Ok(json!({ "plugins": plugins.collect::<Vec<_>>() }))
}

/// Reads one catalog again, or all. Each request reads the catalogs from their folders, so this only checks them.
fn refresh(stored: &StoredPlugins, name: Option<String>) -> Result<Value, String> {
    let names: Vec<String> = match name {
        Some(name) => {
            stored.marketplace(&name)?;
            vec![name]
        }
        None => stored.marketplaces.keys().cloned().collect(),
    };
    let results = names.iter().map(|name| {
        let checked = stored
            .marketplace(name)
            .and_then(|folder| check(name, folder));
        match checked {
            Ok(()) => json!({ "name": name, "success": true }),
            Err(error) => json!({ "name": name, "success": false, "error": error }),
        }
    });
    Ok(json!({ "results": results.collect::<Vec<_>>() }))
}

fn check(name: &str, folder: &Path) -> Result<(), String> {
    let catalog = Catalog::read(folder)?;
    if catalog.name == name {
        return Ok(());
    }
    let (folder, new) = (folder.display(), &catalog.name);
    Err(format!(
        "the marketplace in {folder} now has the name {new:?}: remove {name:?}, and add the folder again"
    ))
}
