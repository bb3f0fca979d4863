//! `session.workspaces.diff`: the changes in the working directory of a session, as git reports them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::CallId;
use allstop_core::receipt::ItemKind;
use allstop_jsonrpc::RpcError;
use allstop_process::ExitInfo;
use allstop_runtime::System;
use allstop_scope::{ScopeOptions, WorkSpec};
use allstop_tools::{CommandLimit, RunningCommand, exit_text};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::fs;

use super::method::{MethodAnswer, MethodCx, failed, later, open_session, read};
use crate::hosted::{HostedSession, StartInProgress};

/// Commands for `sh`, which also document the format of their output.
const SCRIPT: &str = include_str!("workspace_diff.sh");

/// Exit code of the commands if the folder is not in a repository, or if git is not installed.
const NO_REPOSITORY: ExitInfo = ExitInfo::Code(3);

/// Limit of the commands. Git compares a large project in a few seconds.
const LIMIT: Duration = Duration::from_mins(1);

/// Maximum size of all changes in bytes, because they travel in one message.
const OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum size of the changes of one file in bytes. A person does not read longer ones.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Beginning of the patch of a file. Each other line of a patch begins with another character or word.
const PATCH: &str = "diff --git ";

/// Changes to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DiffMode {
    /// Changes that are not in the index, and new files.
    Unstaged,
    /// Changes since the branch has left the default branch.
    Branch,
    /// Changes of the session. The server does not track files, so it reports the unstaged changes.
    Session,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiffParams {
    session_id: String,
    mode: DiffMode,
    #[serde(default)]
    ignore_whitespace: bool,
}

/// Begins the comparison. The process of git is work of the session, so a stop of the session ends it.
pub(super) fn begin(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: DiffParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let system = Arc::clone(cx.server.system());
    let start = session.starts.begin();
    Ok(later(async move {
        let _only = session.comparison.try_acquire().map_err(|_busy| {
            RpcError::overloaded(
                "git already compares the files of this session: repeat the request later",
            )
        })?;
        let output = run(&system, &session, &params, start).await?;
        let (base, changes) = match output {
            Some(output) => parse(&output).ok_or_else(|| {
                RpcError::internal_error("git reported the changes in an unknown format")
            })?,
            None => (None, Vec::new()),
        };
        let mode = match (params.mode, &base) {
            (DiffMode::Branch, Some(_)) => DiffMode::Branch,
            _ => DiffMode::Unstaged,
        };
        let mut answer = json!({
            "requestedMode": params.mode,
            "mode": mode,
            "changes": changes,
            "isFallback": mode != params.mode,
        });
        if let Some(base) = base {
            answer["baseBranch"] = base.into();
        }
        Ok(answer)
    }))
}

/// Temporary copy of the index. It is removed when the value is dropped.
struct IndexCopy(PathBuf);

impl Drop for IndexCopy {
    fn drop(&mut self) {
        // A copy that remains is removed together with the session.
        drop(std::fs::remove_file(&self.0));
    }
}

/// Runs git, and returns its output; `None` without a repository.
async fn run(
    system: &System,
    session: &HostedSession,
    params: &DiffParams,
    start: BoxFuture<'static, StartInProgress>,
) -> Result<Option<Vec<u8>>, RpcError> {
    let start = start.await;
    let host = session.session.background_host().await;
    let host = host.map_err(|error| failed(&error))?;
    let id = CallId::new(format!("diff_{}", ulid::Ulid::generate()));
    let unit = WorkSpec::new(ItemKind::Process, "git diff").id(id.to_string());
    let options = ScopeOptions::default().unit(unit);
    let scope = host.scope().child(id.to_string(), options);
    let scope = scope.map_err(|refused| failed(&refused))?;
    let state = session.state.folder();
    fs::create_dir_all(state)
        .await
        .map_err(|error| failed(&error))?;
    let index = IndexCopy(state.join(format!("{id}.index")));
    let mode = match params.mode {
        DiffMode::Branch => "branch",
        DiffMode::Unstaged | DiffMode::Session => "unstaged",
    };
    let mut arguments = vec!["-c".into(), SCRIPT.into(), "git-diff".into(), mode.into()];
    arguments.push(index.0.clone().into_os_string());
    if params.ignore_whitespace {
        arguments.push("--ignore-all-space".into());
    }
    let folder = session.folder().unwrap_or(system.folder());
    let spec = system
        .requested_process(session.id(), "/bin/sh", folder)
        .args(arguments);
    let started = RunningCommand::start(&scope, "git diff", spec).await;
    drop(start);
    let mut running = started.map_err(|error| failed(&error))?;
    let (mut output, mut is_too_long) = (Vec::new(), false);
    let limit = CommandLimit::starting_now(LIMIT);
    let take = |bytes: &[u8]| {
        is_too_long |= output.len() + bytes.len() > OUTPUT_BYTES_MAX;
        if !is_too_long {
            output.extend_from_slice(bytes);
        }
    };
    let read = running.read_to_exit(limit, &scope, take).await;
    let receipt = read.map_err(|error| failed(&error))?;
    let exit = running.exit().await.map_err(RpcError::internal_error);
    scope.close();
    if receipt.is_some() {
        return Err(RpcError::internal_error(format!(
            "git took longer than {LIMIT:?}"
        )));
    }
    match exit? {
        ExitInfo::Code(0) if is_too_long => Err(RpcError::internal_error(format!(
            "the changes are longer than {OUTPUT_BYTES_MAX} bytes"
        ))),
        ExitInfo::Code(0) => Ok(Some(output)),
        NO_REPOSITORY => Ok(None),
        exit => Err(RpcError::internal_error(format!(
            "git failed: {}",
            exit_text(exit)
        ))),
    }
}

/// Parses the output of the commands: the base branch, and the changed files.
fn parse(output: &[u8]) -> Option<(Option<String>, Vec<Value>)> {
    let output = String::from_utf8_lossy(output);
    let (base, mut rest) = output.split_once('\0')?;
    let base = Some(base.to_owned()).filter(|base| !base.is_empty());
    let mut files = Vec::new();
    while let Some(entry) = rest.strip_prefix(':') {
        let (entry, after) = entry.split_once('\0')?;
        let (path, after) = after.split_once('\0')?;
        let status = entry.rsplit(' ').next()?.chars().next()?;
        let mut file = json!({ "path": path, "changeType": change_type(status) });
        rest = after;
        if matches!(status, 'R' | 'C') {
            let (new_path, after) = after.split_once('\0')?;
            file["oldPath"] = path.into();
            file["path"] = new_path.into();
            rest = after;
        }
        let patches = match status {
            // In this format, git prints no patch of a file with a conflict.
            _ if entry.starts_with(':') => 0,
            // A file with another type is removed and created.
            'T' => 2,
            _ => 1,
        };
        files.push((file, patches));
    }
    let patches = rest.strip_prefix('\0').unwrap_or(rest);
    let patches = patches.strip_prefix(PATCH).unwrap_or(patches);
    let separator = format!("\n{PATCH}");
    let mut patches = patches.split(&*separator).filter(|patch| !patch.is_empty());
    let mut changes = Vec::new();
    for (mut file, count) in files {
        let mut text = String::new();
        for _ in 0..count {
            let patch = patches.next()?.trim_end_matches('\n');
            text.extend([PATCH, patch, "\n"]);
        }
        if text.len() > FILE_BYTES_MAX {
            file["isTruncated"] = true.into();
            text.clear();
        }
        file["diff"] = text.into();
        changes.push(file);
    }
    patches.next().is_none().then_some((base, changes))
}

fn change_type(status: char) -> &'static str {
    match status {
        'A' | 'C' => "added",
        'D' => "deleted",
        'R' => "renamed",
        _ => "modified",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_patches_are_paired() {
        let output = b"main\0:000000 100644 0 1 A\0a b\0:100644 100644 1 1 R100\0old\0new\0\0\
            diff --git a/a b b/a b\n+1\ndiff --git a/old b/new\nrename to new\n";
        let (base, changes) = parse(output).expect("the format");
        assert_eq!(base.as_deref(), Some("main"));
        assert_eq!(
            json!(changes),
            json!([
                { "path": "a b", "changeType": "added", "diff": "diff --git a/a b b/a b\n+1\n" },
                { "path": "new", "oldPath": "old", "changeType": "renamed",
                  "diff": "diff --git a/old b/new\nrename to new\n" },
            ])
        );
        assert_eq!(parse(b"\0"), Some((None, Vec::new())));
        assert_eq!(parse(b"\0:000000 100644 0 1 A\0a\0\0"), None);
    }
}
