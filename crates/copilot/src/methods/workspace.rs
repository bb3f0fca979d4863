//! `session.plan.*` and `session.workspaces.*`: files of a session, in a folder that is removed together with the session.

use std::path::{Component, Path};
use std::sync::Arc;

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{
    MethodAnswer, MethodCx, MethodResult, failed, large, later, open_session, read, ready,
};
use crate::hosted::{HostedSession, PLAN, WORKSPACE_FILES};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkspaceParams {
    session_id: String,
    path: Option<String>,
    content: Option<String>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: WorkspaceParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let content = || {
        let content = params.content.clone();
        content.ok_or_else(|| RpcError::invalid_params("`content` is missing"))
    };
    let file = || file_of(params.path.as_deref().unwrap_or_default());
    match method {
        "session.plan.read" => Ok(large(read_plan(session))),
        "session.plan.update" => {
            let content = content()?;
            Ok(later(write_plan(session, content)))
        }
        "session.plan.delete" => Ok(later(delete_plan(session))),
        // The agent keeps no list of tasks in a database.
        "session.plan.readSqlTodos" => ready(json!({ "rows": [] })),
        "session.workspaces.getWorkspace" => ready(json!({
            "workspace": {
                "id": session.id(),
                "cwd": session.folder(),
                "name": session.state.name(),
                "user_named": session.state.is_named_by_user(),
                "created_at": session.opened_at,
            },
            "path": session.files.path_of(""),
        })),
        "session.workspaces.listFiles" => Ok(large(async move {
            let files = session.files.list(WORKSPACE_FILES).await;
            Ok(json!({ "files": files.map_err(|error| failed(&error))? }))
        })),
        "session.workspaces.readFile" => {
            let (file, path) = (file()?, params.path.clone().unwrap_or_default());
            Ok(large(async move {
                let unreadable = |error: &dyn std::fmt::Display| {
                    RpcError::invalid_params(format!("cannot read {path:?}: {error}"))
                };
                let content = session.files.read(&file).await;
                let content = content.map_err(|error| unreadable(&error))?;
                let content = content.ok_or_else(|| unreadable(&"it does not exist"))?;
                Ok(json!({ "content": content }))
            }))
        }
        "session.workspaces.createFile" => {
            let (file, content) = (file()?, content()?);
            let path = params.path.clone().unwrap_or_default();
            Ok(later(async move {
                let change = session.files.write(&file, &content).await;
                let change = change.map_err(|error| failed(&error))?;
                let data = json!({ "operation": change.as_str(), "path": path });
                session.note("session.workspace_file_changed", data);
                Ok(json!({}))
            }))
        }
        "session.workspaces.saveLargePaste" => {
            let content = content()?;
            let name = format!("paste-{}.txt", ulid::Ulid::generate());
            let file = file_of(&name)?;
            Ok(later(async move {
                let written = session.files.write(&file, &content).await;
                written.map_err(|error| failed(&error))?;
                Ok(json!({ "saved": {
                    "filePath": session.files.path_of(&file),
                    "filename": name,
                    "sizeBytes": content.len(),
                } }))
            }))
        }
        // A compaction is in the log of the session and makes no file.
        "session.workspaces.listCheckpoints" => ready(json!({ "checkpoints": [] })),
        "session.workspaces.readCheckpoint" => ready(json!({ "content": null })),
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

/// Returns the name of a file in the workspace among the files of the session.
fn file_of(path: &str) -> Result<String, RpcError> {
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    let parts = Path::new(path).components();
    let has_name = parts
        .clone()
        .any(|part| matches!(part, Component::Normal(_)));
    if !has_name || !parts.clone().all(is_inside) {
        return Err(RpcError::invalid_params(format!(
            "{path} is not in the workspace files directory"
        )));
    }
    let names = parts.filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let names: Vec<&str> = std::iter::once(WORKSPACE_FILES).chain(names).collect();
    Ok(names.join("/"))
}

async fn read_plan(session: Arc<HostedSession>) -> MethodResult {
    let content = session.files.read(PLAN).await;
    let content = content.map_err(|error| failed(&error))?;
    let path = session.files.path_of(PLAN);
    Ok(json!({ "exists": content.is_some(), "content": content, "path": path }))
}

async fn write_plan(session: Arc<HostedSession>, content: String) -> MethodResult {
    let change = session.files.write(PLAN, &content).await;
    let operation = change.map_err(|error| failed(&error))?.as_str();
    session.note("session.plan_changed", json!({ "operation": operation }));
    Ok(json!({}))
}

async fn delete_plan(session: Arc<HostedSession>) -> MethodResult {
    let removed = session.files.remove(PLAN).await;
    if removed.map_err(|error| failed(&error))? {
        session.note("session.plan_changed", json!({ "operation": "delete" }));
    }
    Ok(json!({}))
}
