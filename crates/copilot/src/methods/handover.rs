//! Takes over a session that another server process of this user has open.

use allstop_core::SessionId;
use allstop_jsonrpc::RpcError;
use allstop_remote::{RemoteError, processes};

use crate::server::CopilotServer;

/// Asks the process that has the session open to release it. Returns true if the session was released, and false if no
/// process reports the session.
///
/// # Errors
/// Returns an error if the process refuses, because a turn or background work of the session runs, or does not answer.
pub(super) async fn release_elsewhere(
    server: &CopilotServer,
    id: &SessionId,
) -> Result<bool, RpcError> {
    let Some(folder) = &server.options().sockets else {
        return Ok(false);
    };
    let store = server.system().store_file();
    for (process, report) in processes(folder).await.unwrap_or_default() {
        let Ok(report) = report else { continue };
        let has_it = report.sessions.iter().any(|open| open.session_id == *id);
        if !has_it || report.store != store || report.pid == std::process::id() {
            continue;
        }
        return match process.release(id).await {
            Ok(()) => Ok(true),
            Err(RemoteError::Refused { pid, message }) => Err(RpcError::overloaded(format!(
                "session {id} is open in process {pid}, which keeps it: {message}"
            ))),
            Err(error) => Err(RpcError::overloaded(format!(
                "session {id} is open in another process: {error}"
            ))),
        };
    }
    Ok(false)
}
