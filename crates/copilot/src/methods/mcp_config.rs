//! `mcp.config.*`: MCP servers of every session, which clients store.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::method::{MethodAnswer, MethodCx, later, read};
use crate::client_parts::{ClientServer, EnvValueMode, server_name};
use crate::stored_settings::StoredSettings;

#[derive(Deserialize)]
struct ConfigParams {
    name: Option<String>,
    config: Option<Map<String, Value>>,
    #[serde(default)]
    names: Vec<String>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: ConfigParams = read(params)?;
    let file = cx.server.settings().clone();
    let name = params.name.clone().filter(|name| !name.is_empty());
    let name = || name.ok_or_else(|| RpcError::invalid_params("`name` is missing"));
    let change: ConfigChange = match method {
        "mcp.config.list" => {
            return Ok(later(async move {
                let settings = file.read().await?;
                Ok(json!({ "servers": settings.mcp_servers }))
            }));
        }
        // Each session reads the file when it is opened, so the server keeps no copy.
        "mcp.config.reload" => {
            return Ok(later(async move {
                file.read().await?;
                Ok(json!({}))
            }));
        }
        "mcp.config.add" | "mcp.config.update" => {
            let name = name()?;
            let config = checked(cx, &name, params.config)?;
            let is_new = method == "mcp.config.add";
            Box::new(move |settings| set(settings, name, config, is_new))
        }
        "mcp.config.remove" => {
            let name = name()?;
            Box::new(move |settings| {
                check_known(settings, &name)?;
                settings.disabled_mcp_servers.remove(&name);
                settings.mcp_servers.remove(&name);
                Ok(())
            })
        }
        "mcp.config.enable" | "mcp.config.disable" => {
            let (names, is_enabled) = (params.names, method == "mcp.config.enable");
            Box::new(move |settings| switch(settings, names, is_enabled))
        }
        unknown => return Err(RpcError::method_not_found(unknown)),
    };
    Ok(later(async move {
        file.change(change).await?;
        Ok(json!({}))
    }))
}

type ConfigChange = Box<dyn FnOnce(&mut StoredSettings) -> Result<(), RpcError> + Send>;

/// Checks a server as a session would, and returns it without empty fields.
fn checked(
    cx: &MethodCx<'_>,
    name: &str,
    config: Option<Map<String, Value>>,
) -> Result<Map<String, Value>, RpcError> {
    let config = config.ok_or_else(|| RpcError::invalid_params("`config` is missing"))?;
    let fields = config.into_iter().filter(|(_, value)| !value.is_null());
    let config: Map<String, Value> = fields.collect();
    let system = cx.server.system();
    if system
        .config()
        .mcp
        .servers
        .contains_key(&*server_name(name))
    {
        let message = format!("the configuration of the server has an MCP server {name:?}");
        return Err(RpcError::invalid_params(message));
    }
    let server = ClientServer::stored(&config).map_err(RpcError::invalid_params)?;
    let named = server.named(name, EnvValueMode::Direct);
    let usable = system.check_session_server(&named);
    usable.map_err(|error| RpcError::invalid_params(error.to_string()))?;
    Ok(config)
}

fn check_known(settings: &StoredSettings, name: &str) -> Result<(), RpcError> {
    if settings.mcp_servers.contains_key(name) {
        return Ok(());
    }
    Err(RpcError::invalid_params(format!(
        "the MCP server {name:?} is not stored"
    )))
}

fn set(
    settings: &mut StoredSettings,
    name: String,
    config: Map<String, Value>,
    is_new: bool,
) -> Result<(), RpcError> {
    if is_new && settings.mcp_servers.contains_key(&name) {
        let message = format!("the MCP server {name:?} exists: update it, or choose another name");
        return Err(RpcError::invalid_params(message));
    }
    if !is_new {
        check_known(settings, &name)?;
    }
    settings.mcp_servers.insert(name, config);
    Ok(())
}

fn switch(
    settings: &mut StoredSettings,
    names: Vec<String>,
    is_enabled: bool,
) -> Result<(), RpcError> {
    for name in names {
        check_known(settings, &name)?;
        if is_enabled {
            settings.disabled_mcp_servers.remove(&name);
        } else {
            settings.disabled_mcp_servers.insert(name);
        }
    }
    Ok(())
}
