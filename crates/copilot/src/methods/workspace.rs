//! `session.plan.*` and `session.workspaces.*`: files of a session, in a folder that is removed together with the session.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::fs;

use super::method::{
    MethodAnswer, MethodCx, MethodResult, failed, large, later, open_session, read, ready,
};
use crate::hosted::HostedSession;

/// Folder of the files, in the folder of the workspace.
const FILES: &str = "files";

/// Maximum number of files in a list. A workspace holds notes of one session, not a project.
const FILES_MAX: usize = 10_000;

/// Maximum size of a file in bytes, because a file travels in one message.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

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
    let file = || file_of(&session, params.path.as_deref().unwrap_or_default());
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
            "path": session.state.folder(),
        })),
        "session.workspaces.listFiles" => Ok(large(async move {
            let files = list(&session.state.folder().join(FILES)).await;
            Ok(json!({ "files": files.map_err(|error| failed(&error))? }))
        })),
        "session.workspaces.readFile" => {
            let (file, path) = (file()?, params.path.clone().unwrap_or_default());
            Ok(large(async move {
                let content = read_text(&file).await.map_err(|error| {
                    RpcError::invalid_params(format!("cannot read {path:?}: {error}"))
                })?;
                Ok(json!({ "content": content }))
            }))
        }
        "session.workspaces.createFile" => {
            let (file, content) = (file()?, content()?);
            let path = params.path.clone().unwrap_or_default();
            Ok(later(async move {
                let operation = write(&file, &content)
                    .await
                    .map_err(|error| failed(&error))?;
                let data = json!({ "operation": operation, "path": path });
                session.note("session.workspace_file_changed", data);
                Ok(json!({}))
            }))
        }
        "session.workspaces.saveLargePaste" => {
            let content = content()?;
            let name = format!("paste-{}.txt", ulid::Ulid::generate());
            let file = file_of(&session, &name)?;
            Ok(later(async move {
                write(&file, &content)
                    .await
                    .map_err(|error| failed(&error))?;
                Ok(json!({ "saved": {
                    "filePath": file,
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

/// Returns the path of a file in the workspace.
fn file_of(session: &HostedSession, path: &str) -> Result<PathBuf, RpcError> {
    let path = Path::new(path);
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    let has_name = path
        .components()
        .any(|part| matches!(part, Component::Normal(_)));
    if !has_name || !path.components().all(is_inside) {
        return Err(RpcError::invalid_params(format!(
            "{} is not in the workspace files directory",
            path.display()
        )));
    }
    Ok(session.state.folder().join(FILES).join(path))
}

async fn read_text(file: &Path) -> io::Result<String> {
    let bytes = fs::metadata(file).await?.len();
    if bytes > FILE_BYTES_MAX {
        let message = format!("it has {bytes} bytes, and the limit is {FILE_BYTES_MAX}");
        return Err(io::Error::other(message));
    }
    fs::read_to_string(file).await
}

/// Writes a file, and returns the operation for the event of the change.
async fn write(file: &Path, content: &str) -> io::Result<&'static str> {
    let exists = fs::try_exists(file).await?;
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).await?;
    }
    fs::write(file, content).await?;
    Ok(if exists { "update" } else { "create" })
}

/// Paths of the files in a folder and below, relative to the folder.
async fn list(folder: &Path) -> io::Result<Vec<String>> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(next) = folders.pop() {
        let mut entries = match fs::read_dir(&next).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        while let Some(entry) = entries.next_entry().await? {
            if files.len() + folders.len() >= FILES_MAX {
                return Err(io::Error::other(format!("more than {FILES_MAX} files")));
            }
            let (path, kind) = (entry.path(), entry.file_type().await?);
            if kind.is_dir() {
                folders.push(path);
            } else if let Ok(path) = path.strip_prefix(folder) {
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

async fn read_plan(session: Arc<HostedSession>) -> MethodResult {
    let file = session.state.plan_file();
    let content = match read_text(&file).await {
        Ok(content) => Some(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(&error)),
    };
    Ok(json!({ "exists": content.is_some(), "content": content, "path": file }))
}

async fn write_plan(session: Arc<HostedSession>, content: String) -> MethodResult {
    let file = session.state.plan_file();
    let operation = write(&file, &content)
        .await
        .map_err(|error| failed(&error))?;
    session.note("session.plan_changed", json!({ "operation": operation }));
    Ok(json!({}))
}

async fn delete_plan(session: Arc<HostedSession>) -> MethodResult {
    match fs::remove_file(session.state.plan_file()).await {
        Ok(()) => {
            session.note("session.plan_changed", json!({ "operation": "delete" }));
            Ok(Value::Object(serde_json::Map::new()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(json!({})),
        Err(error) => Err(failed(&error)),
    }
}
