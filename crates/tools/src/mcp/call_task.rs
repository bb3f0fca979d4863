//! A call that the server continues as a task. The client asks for the state of the task until it has ended.
//!
//! A stop asks the server to cancel the task. The server accepts this request without an obligation, so only the status
//! of the task proves its end.

use std::time::Duration;

use rmcp::model::RequestId;
use rmcp::service::ServiceError;
use tokio::time::sleep;

use super::call_answer::CallAnswer;
use super::connection::Connection;
use super::input_round::answers;
use super::limits::ROUNDS_MAX;
use super::mcp_task::{McpTask, TaskReport};
use crate::tool::ToolInvocation;

/// Pause between two requests for the status, if the server names none.
const POLL_DEFAULT: Duration = Duration::from_secs(1);

/// Minimum of this pause. A server may name no pause that would make the client busy.
const POLL_MIN: Duration = Duration::from_millis(100);

/// Maximum of this pause. A person should not wait longer for a result that is ready.
const POLL_MAX: Duration = Duration::from_secs(30);

/// Pause between two requests for the status after a stop.
const STOPPED_POLL: Duration = Duration::from_millis(50);

/// Number of failed requests in a row after which the outcome of the task counts as unknown. A single request may fail
/// because of the network.
const FAILURES_MAX: usize = 3;

/// Follows a task, and delivers its end as the answer to the call. Resolves, with the reason, only if the end of the task
/// cannot be found out.
///
/// # Cancel safety
/// Dropping the future loses no answer, because the next request for the state returns the same end.
pub(super) async fn follow(
    connection: &Connection,
    call: RequestId,
    mut task: McpTask,
    invocation: &ToolInvocation,
) -> String {
    match ended(connection, &mut task, invocation).await {
        Ok(answer) => {
            // Fails if the connection has ended in the meantime, and this end is the answer.
            drop(connection.calls.answer(&call, answer));
            std::future::pending().await
        }
        Err(why) => why,
    }
}

/// Asks for the state until the task ends.
async fn ended(
    connection: &Connection,
    task: &mut McpTask,
    invocation: &ToolInvocation,
) -> Result<CallAnswer, String> {
    let peer = &connection.peer;
    let scope = &invocation.scope;
    let (mut failures, mut rounds) = (0, 0);
    loop {
        if scope.is_stopped() {
            sleep(STOPPED_POLL).await;
        } else {
            let named = task.poll_interval.unwrap_or(POLL_DEFAULT);
            tokio::select! {
                () = sleep(named.clamp(POLL_MIN, POLL_MAX)) => {}
                () = scope.stopped() => {}
            }
        }
        let report = match task.report(peer).await {
            Ok(report) => report,
            // The end of the connection is the answer to the call.
            Err(ServiceError::TransportClosed) => std::future::pending().await,
            Err(_) if failures + 1 < FAILURES_MAX => {
                failures += 1;
                continue;
            }
            Err(error) => {
                return Err(format!(
                    "it does not report the status of its task: {error}"
                ));
            }
        };
        failures = 0;
        invocation.link.heartbeat();
        match report {
            TaskReport::Ended(answer) => return Ok(answer),
            // A stopped call asks no person.
            _ if scope.is_stopped() => {}
            TaskReport::InputRequired(requests) if rounds < ROUNDS_MAX => {
                rounds += 1;
                let answers = answers(requests, &connection.server, invocation);
                let answers = answers.await.map_err(|error| error.message)?;
                task.update(peer, answers).await;
            }
            TaskReport::InputRequired(_) => {
                return Err(format!("it asked for more information {ROUNDS_MAX} times"));
            }
            TaskReport::ResultRequired => {
                let result = tokio::select! {
                    () = scope.stopped() => continue,
                    result = task.result(peer) => result,
                };
                // The next report shows a failure.
                if let Ok(result @ CallAnswer::Result(_)) = result {
                    return Ok(result);
                }
            }
            TaskReport::Working => {}
        }
    }
}
