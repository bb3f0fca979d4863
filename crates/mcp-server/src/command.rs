//! A started command, and its end. The exit of a command and a stop of its task compete. The rules are:
//! 1. A stop of the task that is accepted before the exit is seen ends the task, and its receipt covers the command. The
//!    time limit stops the task, and so does the loss of the keeper, the process that contains the command.
//! 2. An exit that is seen first makes the task `completed`. Processes that the command has left are stopped by a stop of
//!    the command alone, and the result contains its receipt. The receipt of a stop of the task that comes now includes
//!    the receipt of the first stop.
//! 3. A future never waits for a stop that waits for this future. Therefore the future that reads the output is in the
//!    scope of the command, and the future that stops left processes is outside it.
//!
//! A stop that uses force ends the processes of a scope before the futures of this scope. Therefore the future that reads
//! the output sees the end of a killed command, and stores its last output and the proof.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{EndMethod, Evidence, ItemKind, ItemState, ReceiptItem, StopFindings};
use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_process::ExitInfo;
use allstop_scope::{Scope, StopRequest};
use allstop_task::{ExecutionCx, ExecutorError, TaskEvent, TaskState};
use allstop_tools::{CommandLimit, OutputLimits, RunningCommand};
use tokio::time::timeout;

use crate::output::CommandOutput;
use crate::result::{COMMAND_ITEM, CommandResult, LeftProcess};

/// Size of one read of the output of processes that a command has left, in bytes.
const LEFTOVER_READ_BYTES: usize = 8 * 1024;

/// Time after the exit at which the remaining processes are listed first. A stop may end them before they count as left,
/// and most commands leave none after this time.
const LIST_AFTER: Duration = Duration::from_millis(5);

/// Note on a command that was stopped between its exit and the list of its remaining processes.
const NOT_LISTED: &str =
    "the stop came directly after the exit, before the remaining processes were listed";

/// A started command.
pub(crate) struct StartedCommand {
    running: RunningCommand,
    output: CommandOutput,
    /// Contains the processes of the command, and the future that reads their output.
    scope: Scope,
}

/// Reason why a command runs no more, or is about to end.
enum CommandRun {
    /// A stop covers the task.
    Stopped,
    /// The time limit is over.
    TimedOut(Cause),
    /// The keeper of the command was killed. Allstop kills the processes of the command.
    KeeperLost,
    /// The command has exited. Processes that it started may still run.
    Exited,
}

impl StartedCommand {
    pub(crate) fn new(
        running: RunningCommand,
        limits: OutputLimits,
        scope: Scope,
        cx: &ExecutionCx,
    ) -> Self {
        Self {
            running,
            output: CommandOutput::new(limits, cx.live_text.clone()),
            scope,
        }
    }

    /// Reads the output until the command exits, its time limit is over, or a stop covers the task. Returns the command
    /// if it has exited by itself. Otherwise stores the result, and a stop ends the task.
    ///
    /// # Cancel safety
    /// Dropping the future stops nothing: the scope ends the command.
    pub(crate) async fn follow(
        mut self,
        cx: &ExecutionCx,
        limit: Option<CommandLimit>,
    ) -> Result<Option<Self>, ExecutorError> {
        match self.run(cx, limit).await? {
            CommandRun::Exited => return Ok(Some(self)),
            CommandRun::Stopped => {}
            CommandRun::TimedOut(cause) => cx.stop(cause),
            CommandRun::KeeperLost => self.stop_lost(cx),
        }
        self.end_stopped(cx).await;
        Ok(None)
    }

    async fn run(
        &mut self,
        cx: &ExecutionCx,
        limit: Option<CommandLimit>,
    ) -> Result<CommandRun, ExecutorError> {
        let Self {
            running,
            output,
            scope,
        } = self;
        let read = tokio::select! {
            // The stop and the limit are polled first, because endless output must not delay them.
            biased;
            () = cx.scope.stopped() => return Ok(CommandRun::Stopped),
            cause = over(limit) => return Ok(CommandRun::TimedOut(cause)),
            read = running.read_to_exit(None, scope, |piece| output.push(piece)) => read,
        };
        read.map_err(|error| {
            ExecutorError::new(format!("the command's output could not be read: {error}"))
        })?;
        if cx.scope.is_stopped() {
            // The stop may have ended the command between the two polls.
            return Ok(CommandRun::Stopped);
        }
        let exit = running.exit().await;
        let exit =
            exit.map_err(|why| ExecutorError::new(format!("the command did not start: {why}")))?;
        let is_lost = exit == ExitInfo::Unknown && running.keeper_lost().is_some();
        Ok(if is_lost {
            CommandRun::KeeperLost
        } else {
            CommandRun::Exited
        })
    }

    /// Stops the task of a command whose keeper was killed. The processes may have ended before this stop, so its
    /// receipt receives their item here.
    fn stop_lost(&self, cx: &ExecutionCx) {
        let cause = Cause::new(CauseKind::Failure).detail("the keeper of the command was killed");
        let request = StopRequest::new(Extent::Call, cause.clone());
        let info = self.scope.stop_info(&request);
        cx.stop(cause);
        let status = self.running.process.handle().status();
        let status = status.borrow();
        let Some(proof) = status.empty else {
            return;
        };
        let state = ItemState::Stopped {
            how: EndMethod::Sigkill,
            evidence: Evidence::verified(proof),
            after_ms: Duration::ZERO.into(),
        };
        let mut item = ReceiptItem::new(ItemKind::ToolCall, COMMAND_ITEM, "exec", state);
        item.note = status.evidence_note().map(Into::into);
        let findings = StopFindings {
            items: Arc::from([item]),
            ..StopFindings::default()
        };
        cx.receipts.add(Arc::new(Receipt::of_stop(info, findings)));
    }

    /// A stop covers the task, so the task manager ends the task. Stores the output before the wait, in case the
    /// processes cannot be killed.
    async fn end_stopped(&mut self, cx: &ExecutionCx) {
        write(cx, self.result().to_event()).await;
        let output = &mut self.output;
        let read = self
            .running
            .read_to_exit(None, &self.scope, |piece| output.push(piece));
        if let Err(error) = read.await {
            tracing::debug!(%error, "the rest of a command's output");
        }
        // The proof of the end comes after the exit. Without a proof, the receipt of the stop gives the reason.
        self.read_until_empty().await;
        write(cx, self.result().to_event()).await;
    }

    /// Stops the processes that the command has left, and ends the task. Call this outside the scope of the command.
    ///
    /// # Cancel safety
    /// Dropping the future stops nothing: the scope ends the processes.
    pub(crate) async fn end_exited(mut self, cx: &ExecutionCx) {
        let mut left = self.left_processes().await;
        let mut receipt = None;
        if !self.is_tree_empty() {
            // A stop of the task may drop this future while the processes end.
            let result = CommandResult {
                left_processes: left.clone(),
                ..self.result()
            };
            write(cx, result.to_event()).await;
            receipt = self.stop_left(cx).await;
            if receipt.is_none() && !cx.scope.is_stopped() {
                // The processes have ended by themselves.
                left.clear();
            }
        }
        let mut result = CommandResult {
            left_processes: left,
            receipt,
            ..self.result()
        };
        if result.left_processes.is_empty() && self.is_stopped() {
            result.note.get_or_insert_with(|| NOT_LISTED.to_owned());
        }
        write(cx, result.to_event()).await;
        write(cx, TaskEvent::state(TaskState::Completed)).await;
    }

    /// The processes that still run a short time after the exit.
    async fn left_processes(&self) -> Vec<LeftProcess> {
        let process = &self.running.process;
        let early = match timeout(LIST_AFTER, process.handle().wait_empty()).await {
            Ok(_) => Vec::new(),
            Err(_elapsed) => process.members().await,
        };
        let mut left = self.running.left_over().await;
        if left.is_empty() && !self.is_tree_empty() {
            // The last process has ended, and its keeper has not reported this yet.
            left = self.running.left_over().await;
        }
        if left.is_empty() && self.is_stopped() {
            left = early;
        }
        left.iter().map(LeftProcess::from).collect()
    }

    /// True if a stop has sent a signal to the processes.
    fn is_stopped(&self) -> bool {
        self.running.process.handle().strongest_signal().is_some()
    }

    fn is_tree_empty(&self) -> bool {
        let status = self.running.process.handle().status();
        status.borrow().empty.is_some()
    }

    /// Stops the remaining processes. `None` if no process had to be stopped, or if a stop of the task ends them.
    async fn stop_left(&mut self, cx: &ExecutionCx) -> Option<Receipt> {
        let cause = Cause::new(CauseKind::Parent).detail("the command has exited");
        let request = StopRequest::new(Extent::Call, cause);
        let accepted = self
            .scope
            .accept_stop_of(slice::from_ref(&self.scope), request);
        if !accepted.is_new() {
            // A stop of the task waits for this future, so this future waits only for the processes.
            drop(accepted);
            self.read_until_empty().await;
            return None;
        }
        let stop = accepted.begin();
        // A stop of the task that comes after the end of the processes does not find them.
        cx.receipts.add_stop(stop.clone());
        let receipt = self.read_until(async move { stop.receipt().await }).await;
        let is_stopped = |item: &ReceiptItem| !matches!(item.state, ItemState::Finished { .. });
        let has_stopped = receipt.items().iter().any(is_stopped);
        has_stopped.then(|| Receipt::clone(&receipt))
    }

    async fn read_until_empty(&mut self) {
        let handle = self.running.process.handle().clone();
        self.read_until(async move { drop(handle.wait_empty().await) })
            .await;
    }

    /// Reads the output of the remaining processes until the future is ready. A process that blocks on a full pipe cannot
    /// end by itself.
    async fn read_until<T>(&mut self, end: impl Future<Output = T>) -> T {
        let Self {
            running, output, ..
        } = self;
        let mut end = std::pin::pin!(end);
        let mut buffer = vec![0; LEFTOVER_READ_BYTES];
        let mut is_open = true;
        loop {
            tokio::select! {
                biased;
                ended = &mut end => return ended,
                read = running.reader.read_leftovers(&mut buffer), if is_open => match read {
                    Ok(0) | Err(_) => is_open = false,
                    Ok(len) => output.push(buffer.get(..len).unwrap_or_default()),
                },
            }
        }
    }

    /// The result so far.
    fn result(&self) -> CommandResult {
        let status = self.running.process.handle().status();
        let status = status.borrow();
        let mut result = CommandResult {
            output: self.output.text(),
            output_bytes: Some(self.output.total_bytes()),
            verified: status.empty,
            note: status.evidence_note().map(str::to_owned),
            ..CommandResult::default()
        };
        result.set_exit(status.exited.filter(|exit| *exit != ExitInfo::Unknown));
        result
    }
}

/// Waits for the end of a time limit. Waits forever without a limit.
async fn over(limit: Option<CommandLimit>) -> Cause {
    match limit {
        Some(limit) => limit.over().await,
        None => std::future::pending().await,
    }
}

/// Writes an event. If the execution has ended, nothing more needs to be stored, and the executor returns soon.
pub(crate) async fn write(cx: &ExecutionCx, event: TaskEvent) {
    if cx.events.write(event).await.is_err() {
        tracing::debug!(task = %cx.task.id, "an event came after the end of its task");
    }
}
