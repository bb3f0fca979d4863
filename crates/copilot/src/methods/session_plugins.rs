//! `session.plugins.*`: the plugins of an open session.

use std::sync::Arc;

use allstop_jsonrpc::RpcError;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::mcp::infos_of;
use super::method::{
    MethodAnswer, MethodCx, MethodResult, SessionIdParams, later, open_session, read, ready,
};
use super::open::reopen;
use crate::hosted::HostedSession;
use crate::server::CopilotServer;

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: SessionIdParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    match method {
        "session.plugins.list" => ready(json!({ "plugins": infos(&session) })),
        "session.plugins.reload" => Ok(later(reload(cx.server.clone(), session))),
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

/// Describes the plugins that the session uses.
fn infos(session: &HostedSession) -> Vec<Value> {
    let plugins = session.choice().parts.plugins;
    let infos = plugins.into_iter().map(|one| {
        let mut info = json!({
            "name": one.plugin.name,
            "marketplace": one.marketplace,
            "enabled": true,
        });
        if let Some(version) = one.plugin.version {
            info["version"] = version.into();
        }
        info
    });
    infos.collect()
}

/// Opens the session again with its present plugins. A session that has none, and gets none, stays open.
async fn reload(server: CopilotServer, session: Arc<HostedSession>) -> MethodResult {
    let stored = server.settings().read().await?.plugins;
    let parts = session.choice().parts;
    let has_plugins = !parts.plugins.is_empty() || !parts.plugin_folders.is_empty();
    if !has_plugins && stored.installed.iter().all(|plugin| !plugin.is_enabled) {
        return Ok(json!({}));
    }
    let id = session.id().clone();
    let session = reopen(server.clone(), id, "plugins", |_| Ok(())).await?;
    if let Some(servers) = session.plugin_servers() {
        servers.begin().await?;
    }
    let data = json!({ "servers": infos_of(&server, &session) });
    session.send_ephemeral("session.mcp_servers_loaded", data);
    Ok(json!({}))
}
