//! `tools.list`: the built-in tools of every session.

use std::path::Path;
use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_jsonrpc::RpcError;
use allstop_scope::{Scope, WorkSpec};
use allstop_tools::{
    BackgroundHost, BackgroundRegistry, OutputFolder, ShellConfig, Workspace, builtin_tools,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, failed, later};
use crate::builtin::renamed;

pub(super) fn list(
    cx: &MethodCx<'_>,
    _params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let (scope, system) = (
        cx.server.connections().clone(),
        Arc::clone(cx.server.system()),
    );
    let spec = WorkSpec::new(ItemKind::Thread, "description of the tools");
    let described = cx
        .server
        .connections()
        .spawn_blocking(spec, move |_| described(scope, system.folder()))
        .map_err(|error| failed(&error))?;
    Ok(later(async move {
        let tools = described.await.map_err(|error| failed(&error))??;
        Ok(json!({ "tools": tools }))
    }))
}

/// Describes the tools. They are created only for that, so no process and no file belongs to them.
fn described(scope: Scope, folder: &Path) -> Result<Vec<Value>, RpcError> {
    let workspace = Workspace::new(folder).map_err(|error| failed(&error))?;
    let shell = ShellConfig::new(folder, Arc::new(OutputFolder::new(folder)));
    let host: Arc<dyn BackgroundHost> = Arc::new(BackgroundRegistry::new(scope));
    let tools = builtin_tools(&Arc::new(workspace), shell, &host);
    let infos = tools.into_iter().map(|tool| {
        let tool = renamed(tool);
        let spec = tool.spec();
        json!({
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.input_schema,
        })
    });
    Ok(infos.collect())
}
