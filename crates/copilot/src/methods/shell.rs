//! `session.shell.*`: commands that a client runs in a session. Each is background work of the session, so it is in the list
//! of the work and in the receipts of stops, and it ends with the session.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::ItemKind;
use allstop_core::{CallId, Cause, CauseKind};
use allstop_host::finish_work;
use allstop_jsonrpc::RpcError;
use allstop_scope::WorkSpec;
use allstop_session::StopTarget;
use allstop_tools::BackgroundWork;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::method::{
    MethodAnswer, MethodCx, MethodResult, failed, later, open_session, read, whole,
};
use crate::hosted::{HostedSession, StartInProgress};
use crate::server::CopilotServer;

/// Default limit of a command, as the protocol documents it.
const LIMIT_DEFAULT: Duration = Duration::from_secs(30);

/// Maximum length of a client's id of a request, in bytes. The SDKs use UUIDs.
const REQUEST_ID_LEN_MAX: usize = 200;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShellParams {
    session_id: String,
    command: Option<String>,
    cwd: Option<PathBuf>,
    /// Limit of the command in milliseconds.
    timeout: Option<u64>,
    process_id: Option<String>,
    request_id: Option<String>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: ShellParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let server = cx.server.clone();
    match method {
        "session.shell.exec" => {
            let limit = params.timeout.map_or(LIMIT_DEFAULT, Duration::from_millis);
            let command = RequestedCommand {
                text: wanted(params.command, "command")?,
                folder: params.cwd,
                call_id: CallId::new(format!("shell_{}", ulid::Ulid::generate())),
            };
            let start = session.starts.begin();
            Ok(later(async move {
                let work = command.start(&server, &session, start).await?;
                end_at_limit(&server, session, Arc::clone(&work), limit);
                Ok(json!({ "processId": work.id }))
            }))
        }
        "session.shell.kill" => {
            let id = BackgroundId::new(wanted(params.process_id, "processId")?);
            Ok(later(async move {
                let (is_stopped, receipt) = stopped(&session, id).await;
                Ok(json!({ "killed": is_stopped, "receipt": receipt }))
            }))
        }
        "session.shell.executeUserRequested" => {
            let command = RequestedCommand {
                text: wanted(params.command, "command")?,
                folder: None,
                call_id: requested_id(params.request_id)?,
            };
            let start = session.starts.begin();
            Ok(later(async move {
                let call_id = command.call_id.clone();
                let work = command.start(&server, &session, start).await?;
                result_of(&call_id, &work).await
            }))
        }
        "session.shell.cancelUserRequested" => {
            let call_id = requested_id(params.request_id)?;
            let works = session.session.background();
            let mut running = works.iter().filter(|work| work.is_running());
            let id = running.find(|work| work.call_id == call_id);
            let id = id.map(|work| work.id.clone());
            Ok(later(async move {
                let Some(id) = id else {
                    return Ok(json!({ "cancelled": false }));
                };
                let (is_stopped, receipt) = stopped(&session, id).await;
                Ok(json!({ "cancelled": is_stopped, "receipt": receipt }))
            }))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

fn wanted(given: Option<String>, name: &str) -> Result<String, RpcError> {
    let given = given.filter(|given| !given.trim().is_empty());
    given.ok_or_else(|| RpcError::invalid_params(format!("`{name}` is missing")))
}

/// Returns the id of the call for a client's id of a request.
fn requested_id(request: Option<String>) -> Result<CallId, RpcError> {
    let request = wanted(request, "requestId")?;
    if request.len() > REQUEST_ID_LEN_MAX {
        let message = format!("`requestId` is longer than {REQUEST_ID_LEN_MAX} bytes");
        return Err(RpcError::invalid_params(message));
    }
    Ok(CallId::new(format!("shell_{request}")))
}

/// A command of a client.
struct RequestedCommand {
    text: String,
    folder: Option<PathBuf>,
    call_id: CallId,
}

impl RequestedCommand {
    /// Starts the command as background work of the session.
    async fn start(
        self,
        server: &CopilotServer,
        session: &Arc<HostedSession>,
        start: BoxFuture<'static, StartInProgress>,
    ) -> Result<Arc<BackgroundWork>, RpcError> {
        let (system, session) = (Arc::clone(server.system()), Arc::clone(session));
        let starting = async move {
            let _start = start.await;
            let host = session.session.background_host().await;
            let host = host.map_err(|error| failed(&error))?;
            let base = session.folder().unwrap_or(system.folder());
            let folder = self
                .folder
                .map_or(base.to_owned(), |folder| base.join(folder));
            let shell = system.requested_shell(session.id(), folder, host);
            let started = shell.start_requested(self.call_id, &self.text).await;
            started.map_err(|error| failed(&error))
        };
        let name = "start of a command".to_owned();
        whole(finish_work(server.connections(), name, starting)).await?
    }
}

/// Stops a command at its limit.
fn end_at_limit(
    server: &CopilotServer,
    session: Arc<HostedSession>,
    work: Arc<BackgroundWork>,
    limit: Duration,
) {
    let spec = WorkSpec::new(ItemKind::Future, "limit of a command");
    let spawned = server.connections().spawn(spec, move |cx| async move {
        tokio::select! {
            biased;
            _end = work.ended() => {}
            _stopped = cx.stopped_at("limit of a command") => {}
            () = sleep(limit) => {
                let detail = format!("limit of {} ms", limit.as_millis());
                let cause = Cause::new(CauseKind::Deadline).detail(detail);
                let stop = session.session.stop(&StopTarget::Background(work.id.clone()), cause);
                drop(stop.receipt().await);
            }
        }
    });
    // If the server is being stopped, the command ends with its session.
    drop(spawned);
}

/// Stops a command. Returns true if this stop has ended the command.
async fn stopped(session: &HostedSession, id: BackgroundId) -> (bool, Value) {
    let cause = Cause::new(CauseKind::User).by("copilot");
    let stop = session.session.stop(&StopTarget::Background(id), cause);
    let receipt = stop.receipt().await;
    let is_stopped = receipt.outcome().is_none() && receipt.quiet();
    (is_stopped, json!(receipt))
}

/// Waits for the end of a command.
async fn result_of(call_id: &CallId, work: &BackgroundWork) -> MethodResult {
    let end = work.ended().await;
    let is_finished = end.state.as_str() == "finished";
    let mut result = json!({
        "toolCallId": call_id,
        "success": is_finished && end.exit_code == Some(0),
        "output": work.output(),
    });
    if let Some(code) = end.exit_code.filter(|_| is_finished) {
        result["exitCode"] = code.into();
    } else {
        result["error"] = format!("the command was {}", end.state.as_str()).into();
    }
    Ok(result)
}
