//! The calls of the tools.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, CauseKind, TaskId};
use allstop_task::{
    CancelError, ListFilter, LiveItem, Task, TaskManager, TaskRequest, TaskState, TaskSummary,
};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use rmcp::service::RequestContext;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::arguments::{CommandArguments, PreviewArguments, ReceiptArguments, StopArguments};
use crate::catalog;
use crate::failure::CallFailure;
use crate::progress::{ProgressRecipient, follow};
use crate::report::{CommandReport, PreviewReport};
use crate::sessions::SessionEnd;

/// Maximum number of commands in one preview. It is above the default limit of running commands.
const PREVIEWED_MAX: usize = 256;

/// Number of tasks in one page, in the search for the last ended one.
const PAGE_LEN: usize = 256;

/// Longest wait for the live output of a command in a preview. Without output there is none to wait for.
const LIVE_WAIT_MAX: Duration = Duration::from_millis(100);

/// A call of a client.
pub(crate) struct ClientCall<'a> {
    pub(crate) manager: &'a TaskManager,
    pub(crate) owner: Arc<str>,
    pub(crate) session_end: SessionEnd,
    pub(crate) context: &'a RequestContext<RoleServer>,
}

/// Performs a call.
pub(crate) async fn call(
    client: &ClientCall<'_>,
    tool: &str,
    arguments: JsonObject,
) -> Result<CallToolResult, CallFailure> {
    match tool {
        catalog::EXEC => client.exec(&parse(catalog::EXEC, arguments)?).await,
        catalog::BACKGROUND => {
            let arguments = parse(catalog::BACKGROUND, arguments)?;
            client.background(&arguments).await
        }
        catalog::STOP => client.stop(parse(catalog::STOP, arguments)?).await,
        catalog::PREVIEW => client.preview(parse(catalog::PREVIEW, arguments)?).await,
        _ => client.receipt(parse(catalog::RECEIPT, arguments)?).await,
    }
}

fn parse<A: DeserializeOwned>(tool: &'static str, arguments: JsonObject) -> Result<A, CallFailure> {
    let parsed = serde_json::from_value(Value::Object(arguments));
    parsed.map_err(|error| CallFailure::WrongArguments { tool, error })
}

impl ClientCall<'_> {
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
        Ok(result_of(&report, report.text(), report.is_success()))
    }

    /// Waits until the client needs no answer. Returns the cause.
    async fn cancelled(&self) -> Cause {
        tokio::select! {
            biased;
            () = self.session_end.0.cancelled() => {
                Cause::new(CauseKind::Disconnect).detail("the MCP client ended its session")
            }
            () = self.context.ct.cancelled() => if self.context.peer.is_transport_closed() {
                Cause::new(CauseKind::Disconnect).detail("the MCP client is gone")
            } else {
                Cause::new(CauseKind::User).detail("the MCP client cancelled the request")
            },
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
        let tasks = if let Some(id) = arguments.id {
            vec![self.find(&id).await?.id.clone()]
        } else {
            self.unended().await?
        };
        let mut commands = Vec::new();
        for id in tasks {
            commands.push(self.previewed(&id).await?);
        }
        let report = PreviewReport { commands };
        Ok(result_of(&report, report.text(), true))
    }

    /// The commands that run or are about to start.
    async fn unended(&self) -> Result<Vec<TaskId>, CallFailure> {
        let mut tasks = Vec::new();
        for state in [TaskState::Working, TaskState::Submitted] {
            let filter = self.filter(Some(state));
            let page = self.manager.list(&filter, None, PREVIEWED_MAX).await;
            let page = page.map_err(|error| CallFailure::Other(error.to_string()))?;
            tasks.extend(page.tasks.into_iter().map(|task| task.id));
        }
        Ok(tasks)
    }

    /// Report about a command with the receipt of a preview, and with the last output if it runs.
    async fn previewed(&self, id: &TaskId) -> Result<CommandReport, CallFailure> {
        let mut live = self
            .manager
            .subscribe_to_execution(id, None)
            .await?
            .with_live_text();
        let mut output = String::new();
        let reading = async {
            while let Some(Ok(item)) = live.next().await {
                if let LiveItem::Piece(piece) = item {
                    output.push_str(&piece.text);
                    break;
                }
            }
        };
        // A command without output has no piece.
        let _read_or_late = timeout(LIVE_WAIT_MAX, reading).await;
        let task = self.manager.get(id).await?;
        let mut report = CommandReport::of_task(&task);
        if !task.has_ended() {
            report.result.output = output;
        }
        let preview = self.manager.preview(id, CauseKind::User.into()).await?;
        report.result.receipt = Some(preview);
        Ok(report)
    }

    async fn receipt(&self, arguments: ReceiptArguments) -> Result<CallToolResult, CallFailure> {
        let task = match arguments.id {
            Some(id) => self.find(&id).await?,
            None => self.last_ended().await?,
        };
        if !task.has_ended() {
            return Err(CallFailure::StillRuns(task.id.clone()));
        }
        let report = CommandReport::of_task(&task);
        Ok(result_of(&report, report.text(), true))
    }

    fn request(&self, arguments: &CommandArguments) -> Result<TaskRequest, CallFailure> {
        let message = arguments.to_message();
        let message = message.map_err(|error| CallFailure::Other(error.to_string()))?;
        Ok(TaskRequest::new(Arc::clone(&self.owner), message))
    }

    /// The command of this client with this id.
    async fn find(&self, id: &str) -> Result<Arc<Task>, CallFailure> {
        let id = TaskId::new(id);
        let task = self.manager.get(&id).await?;
        let is_own = task.owner == self.owner;
        is_own.then_some(task).ok_or(CallFailure::NotFound(id))
    }

    async fn last_ended(&self) -> Result<Arc<Task>, CallFailure> {
        let mut after = None;
        loop {
            let page = self
                .manager
                .list(&self.filter(None), after.as_ref(), PAGE_LEN)
                .await;
            let page = page.map_err(|error| CallFailure::Other(error.to_string()))?;
            if let Some(ended) = page.tasks.iter().find(|task| TaskSummary::has_ended(task)) {
                return Ok(self.manager.get(&ended.id).await?);
            }
            after = Some(page.next.ok_or(CallFailure::NoneEnded)?);
        }
    }

    fn filter(&self, state: Option<TaskState>) -> ListFilter {
        let mut filter = ListFilter::default();
        filter.owner = Some(Arc::clone(&self.owner));
        filter.state = state;
        filter
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
