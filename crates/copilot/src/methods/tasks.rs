//! `session.tasks.*`: methods for the background work of a session.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::ids::BackgroundId;
use allstop_core::record::{Attachment, BackgroundKind};
use allstop_core::{CallId, Cause, CauseKind};
use allstop_jsonrpc::RpcError;
use allstop_session::StopTarget;
use allstop_tools::BackgroundWork;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, later, open_session, read};

/// Maximum size in bytes of the output in a progress report.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskParams {
    session_id: String,
    id: Option<String>,
    /// Extension of `waitForPending`: the maximum wait.
    timeout_ms: Option<u64>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: TaskParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let id = || {
        let id = params.id.clone();
        id.ok_or_else(|| RpcError::invalid_params("`id` is missing"))
    };
    let works = session.session.background();
    let now = |answer: Value| Ok(MethodAnswer::Now(Ok(answer)));
    match method {
        "session.tasks.list" => {
            let tasks: Vec<_> = works.iter().map(info_of).collect();
            now(json!({ "tasks": tasks }))
        }
        "session.tasks.refresh" => now(json!({})),
        // Ended work leaves the list by itself.
        "session.tasks.remove" => now(json!({ "removed": false })),
        "session.tasks.getCurrentPromotable" | "session.tasks.promoteCurrentToBackground"
            if session.session.running_calls().is_empty() =>
        {
            now(json!({}))
        }
        "session.tasks.getCurrentPromotable" | "session.tasks.promoteCurrentToBackground" => {
            let message = "choose a running call by its id: `session.tasks.promoteToBackground`";
            Err(RpcError::invalid_params(message))
        }
        "session.tasks.sendMessage" => {
            let error = "background work takes no messages";
            now(json!({ "sent": false, "error": error }))
        }
        "session.tasks.startAgent" => Err(RpcError::invalid_params(
            "only the model starts agents, with its tool `agent`",
        )),
        "session.tasks.cancel" => {
            let target = StopTarget::Background(BackgroundId::new(id()?));
            let cause = Cause::new(CauseKind::User).by("copilot");
            let stop = session.session.stop(&target, cause);
            Ok(later(async move {
                let receipt = stop.receipt().await;
                let cancelled = receipt.outcome().is_none() && receipt.quiet();
                Ok(json!({ "cancelled": cancelled, "receipt": receipt }))
            }))
        }
        "session.tasks.getProgress" => {
            let id = id()?;
            let work = works.iter().find(|work| work.id.as_str() == id);
            now(json!({ "progress": work.map(|work| progress_of(work)) }))
        }
        "session.tasks.promoteToBackground" => {
            let promoted = session.session.promote(&CallId::new(id()?));
            now(json!({ "promoted": promoted.is_ok() }))
        }
        "session.tasks.waitForPending" => {
            let limit = params.timeout_ms.map(Duration::from_millis);
            Ok(later(async move {
                let idle = session.session.background_idle();
                let is_drained = if let Some(limit) = limit {
                    tokio::time::timeout(limit, idle).await.is_ok()
                } else {
                    idle.await;
                    true
                };
                Ok(json!({ "drained": is_drained, "timedOut": !is_drained }))
            }))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

fn status_of(work: &BackgroundWork) -> &'static str {
    match work.end() {
        None => "running",
        Some(end) if end.exit_code.is_some_and(|code| code != 0) => "failed",
        Some(end) if end.state.as_str() == "finished" => "completed",
        Some(_) => "cancelled",
    }
}

fn info_of(work: &Arc<BackgroundWork>) -> Value {
    let attachment = match work.attachment() {
        Attachment::Attached if !work.is_detached() => "attached",
        _ => "detached",
    };
    let mut info = json!({
        "id": work.id,
        "description": work.name,
        "startedAt": work.started_at,
        "status": status_of(work),
        "executionMode": "background",
        "toolCallId": work.call_id,
    });
    let more = match work.kind() {
        BackgroundKind::Shell => json!({
            "type": "shell",
            "command": work.name,
            "attachmentMode": attachment,
            "logPath": work.output_file,
        }),
        BackgroundKind::Agent => json!({
            "type": "agent",
            "agentType": "general-purpose",
            "prompt": work.name,
        }),
    };
    if let (Value::Object(info), Value::Object(more)) = (&mut info, more) {
        info.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
    }
    info
}

fn progress_of(work: &BackgroundWork) -> Value {
    let output = work.output();
    let mut start = output.len().saturating_sub(OUTPUT_BYTES_MAX);
    while !output.is_char_boundary(start) {
        start += 1;
    }
    match work.kind() {
        BackgroundKind::Shell => json!({
            "type": "shell",
            "recentOutput": output.get(start..).unwrap_or_default(),
        }),
        BackgroundKind::Agent => json!({ "type": "agent", "recentActivity": [] }),
    }
}
