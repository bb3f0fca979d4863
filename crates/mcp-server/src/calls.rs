//! The calls of the tools.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, CauseKind, TaskId};
use allstop_task::{CancelError, LiveItem, TaskManager, TaskRequest, TaskState};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use rmcp::service::RequestContext;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::arguments::{CommandArguments, PreviewArguments, ReceiptArguments, StopArguments};
use crate::catalog;
use crate::confirmed_cancel::ConfirmedCall;
use crate::failure::CallFailure;
use crate::progress::{LastOutput, ProgressRecipient, follow};
use crate::report::{CommandReport, PreviewReport};
use crate::sessions::SessionEnd;

/// Longest wait for the live output of a command in a preview. Without output there is none to wait for.
const LIVE_WAIT_MAX: Duration = Duration::from_millis(100);

/// Confirmation for a call that was cancelled before it began.
const NOT_BEGUN: &str = "the call was cancelled before it began: no command was started";

/// A call of a client.
pub(crate) struct ClientCall<'a> {
    pub(crate) manager: &'a TaskManager,
    /// Folder of commands that name none.
    pub(crate) folder: &'a Path,
    pub(crate) owner: Arc<str>,
    pub(crate) session_end: SessionEnd,
    /// Confirms the cancellation of the call, if its client wants this.
    pub(crate) confirmed: Option<ConfirmedCall>,
    pub(crate) context: &'a RequestContext<RoleServer>,
}

/// Performs a call.
pub(crate) async fn call(
    client: &ClientCall<'_>,
    tool: &str,
    arguments: JsonObject,
) -> Result<CallToolResult, CallFailure> {
    match tool {
        catalog::EXEC => {
            let arguments = client.command(catalog::EXEC, arguments).await?;
            client.check_begin()?;
            client.exec(&arguments).await
        }
        catalog::BACKGROUND => {
            let arguments = client.command(catalog::BACKGROUND, arguments).await?;
            client.check_begin()?;
            client.background(&arguments).await
        }
        catalog::STOP => client.stop(parse(catalog::STOP, arguments)?).await,
        catalog::PREVIEW => client.preview(parse(catalog::PREVIEW, arguments)?).await,
        _ => client.receipt(parse(catalog::RECEIPT, arguments)?).await,
    }
}

fn parse<A: DeserializeOwned>(tool: &'static str, arguments: JsonObject) -> Result<A, CallFailure> {
    let parsed = serde_json::from_value(Value::Object(arguments));
    parsed.map_err(|error: serde_json::Error| CallFailure::WrongArguments {
        tool,
        reason: error.to_string(),
    })
}

impl ClientCall<'_> {
    /// Parses and checks the arguments of a command.
    async fn command(
        &self,
        tool: &'static str,
        arguments: JsonObject,
    ) -> Result<CommandArguments, CallFailure> {
        let arguments: CommandArguments = parse(tool, arguments)?;
        let checked = arguments.check().map_err(|error| error.to_string());
        checked.map_err(|reason| CallFailure::WrongArguments { tool, reason })?;
        if let Some(cwd) = &arguments.cwd {
            let folder = self.folder.join(cwd);
            let found = tokio::fs::metadata(&folder).await;
            if !found.is_ok_and(|found| found.is_dir()) {
                return Err(CallFailure::NoFolder(folder));
            }
        }
        Ok(arguments)
    }

    /// Refuses to start the command of a call that is cancelled before.
    fn check_begin(&self) -> Result<(), CallFailure> {
        let confirmed = self.confirmed.as_ref();
        if self.context.ct.is_cancelled() || confirmed.is_some_and(ConfirmedCall::is_cancelled) {
            return Err(CallFailure::Cancelled(NOT_BEGUN.to_owned()));
        }
        Ok(())
    }

    /// Runs a command, and waits for its end. If the client cancels the request or ends its session, stops the command.
    async fn exec(&self, arguments: &CommandArguments) -> Result<CallToolResult, CallFailure> {
        let accepted = self.manager.execute(self.request(arguments)?).await?;
        let id = accepted.task_id;
        let token = self.context.meta.get_progress_token();
        let recipient = token.map(|token| ProgressRecipient {
            peer: self.context.peer.clone(),
            token,
        });
        let following = follow(&id, accepted.subscription.with_live_text(), recipient);
        tokio::select! {
            biased;
            cause = self.cancelled() => self.stop_cancelled(&id, cause).await,
            followed = following => followed?,
        }
        let task = self.manager.get(&id).await?;
        let report = CommandReport::of_task(&task);
        let is_cancelled = self
            .confirmed
            .as_ref()
            .is_some_and(ConfirmedCall::is_cancelled);
        if is_cancelled && !report.has_ended() {
            // A response would claim the end of the command.
            self.context.ct.cancelled().await;
        }
        if is_cancelled && task.status.state == TaskState::Canceled {
            return Err(CallFailure::Cancelled(report.text()));
        }
        Ok(result_of(&report, report.text(), report.is_success()))
    }

    /// Waits until the client needs no answer. Returns the cause.
    async fn cancelled(&self) -> Cause {
        tokio::select! {
            biased;
            () = self.session_end.0.cancelled() => {
                Cause::new(CauseKind::Disconnect).detail("the MCP client ended its session")
            }
            () = self.confirmed_cancel() => {
                Cause::new(CauseKind::User).detail("the MCP client cancelled the request")
            }
            () = self.context.ct.cancelled() => if self.context.peer.is_transport_closed() {
                Cause::new(CauseKind::Disconnect).detail("the MCP client is gone")
            } else {
                Cause::new(CauseKind::User).detail("the MCP client cancelled the request")
            },
        }
    }

    async fn confirmed_cancel(&self) {
        match &self.confirmed {
            Some(call) => call.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Stops the command of a cancelled request. The client no longer waits, and the task keeps the receipt.
    async fn stop_cancelled(&self, id: &TaskId, cause: Cause) {
        if let Err(error) = self.manager.cancel(id, cause).await {
            tracing::debug!(%error, "the stop of a cancelled request");
        }
    }

    async fn background(
        &self,
        arguments: &CommandArguments,
    ) -> Result<CallToolResult, CallFailure> {
        let accepted = self.manager.execute(self.request(arguments)?).await?;
        let task = self.manager.get(&accepted.task_id).await?;
        let report = CommandReport::of_task(&task);
        Ok(result_of(&report, report.text(), report.is_success()))
    }

    async fn stop(&self, arguments: StopArguments) -> Result<CallToolResult, CallFailure> {
        let id = self.find(&arguments.id).await?.id.clone();
        let cause = Cause::new(CauseKind::User).detail("tool `stop` of the MCP client");
        let stopping = self.manager.cancel(&id, cause);
        let stopped = if arguments.force {
            // The stop begins with the first poll.
            let (stopped, ()) = tokio::join!(stopping, async { self.manager.force(&id) });
            stopped
        } else {
            stopping.await
        };
        match stopped {
            Ok(_) | Err(CancelError::AlreadyEnded(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let report = CommandReport::of_task(&*self.find(&arguments.id).await?);
        Ok(result_of(&report, report.text(), true))
    }

    async fn preview(&self, arguments: PreviewArguments) -> Result<CallToolResult, CallFailure> {
        let mut tasks = if let Some(id) = arguments.id {
            vec![self.find(&id).await?.id.clone()]
        } else {
            self.unended().await?
        };
        // The ids grow with the time of the start.
        tasks.sort();
        let mut commands = Vec::new();
        for id in tasks {
            commands.push(self.previewed(&id).await?);
        }
        let report = PreviewReport { commands };
        Ok(result_of(&report, report.text(), true))
    }

    /// Report about a command with the receipt of a preview, and with the last output if it runs.
    async fn previewed(&self, id: &TaskId) -> Result<CommandReport, CallFailure> {
        let mut live = self
            .manager
            .subscribe_to_execution(id, None)
            .await?
            .with_live_text();
        let mut output = LastOutput::default();
        let reading = async {
            while let Some(Ok(item)) = live.next().await {
                if let LiveItem::Piece(piece) = item {
                    output.push(&piece.text);
                    break;
                }
            }
        };
        // A command without output has no piece.
        let _read_or_late = timeout(LIVE_WAIT_MAX, reading).await;
        let task = self.manager.get(id).await?;
        let mut report = CommandReport::of_task(&task);
        if task.has_ended() {
            output.push(&report.result.output);
        }
        report.result.output = output.with_note();
        let preview = self.manager.preview(id, CauseKind::User.into()).await?;
        report.result.receipt = Some(preview);
        Ok(report)
    }

    async fn receipt(&self, arguments: ReceiptArguments) -> Result<CallToolResult, CallFailure> {
        let (task, ended) = match arguments.id {
            Some(id) => (self.find(&id).await?, Vec::new()),
            None => self.last_ended().await?,
        };
        if !task.has_ended() {
            return Err(CallFailure::StillRuns(task.id.clone()));
        }
        let report = CommandReport::of_task(&task);
        let mut text = report.text();
        if !ended.is_empty() {
            let ended: Vec<_> = ended.iter().map(CommandReport::line).collect();
            text = format!("{text}\n[ended before: {}]", ended.join("; "));
        }
        Ok(result_of(&report, text, true))
    }

    fn request(&self, arguments: &CommandArguments) -> Result<TaskRequest, CallFailure> {
        let message = arguments.to_message();
        let message = message.map_err(|error| CallFailure::Other(error.to_string()))?;
        Ok(TaskRequest::new(Arc::clone(&self.owner), message))
    }
}

/// Result with the report as text and as structured content.
fn result_of(report: &impl Serialize, text: String, is_success: bool) -> CallToolResult {
    let content = vec![ContentBlock::text(text)];
    let mut result = if is_success {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    };
    result.structured_content = serde_json::to_value(report).ok();
    result
}
