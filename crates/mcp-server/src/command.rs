//! A started command, and its end. The exit of a command and a stop of its task compete. The rules are:
//! 1. A stop of the task that is accepted before the executor has seen the exit makes the task `canceled`. The receipt of
//!    that stop then covers the command.
//! 2. An exit that the executor sees first makes the task `completed`. Processes that the command has left are stopped
//!    by a stop of the command alone, and the result contains its receipt. A stop of the task that comes now joins: the
//!    task manager decides which of the two ends the task.
//! 3. A time limit stops the command alone. Its receipt ends the task.
//!
//! A stop may drop the executor after the grace (the time before a stop uses force). Therefore the executor stores the
//! output before it waits for the end of a stopped command.

use std::sync::Arc;

use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_process::ExitInfo;
use allstop_scope::{Scope, StopRequest};
use allstop_task::model::StoppedWork;
use allstop_task::{ExecutionCx, ExecutorError, TaskEvent, TaskState};
use allstop_tools::{CommandLimit, OutputLimits, RunningCommand};

use crate::output::CommandOutput;
use crate::result::{CommandResult, LeftProcess};

/// Size of one read of the output of processes that a command has left, in bytes.
const LEFTOVER_READ_BYTES: usize = 8 * 1024;

/// A started command.
pub(crate) struct StartedCommand {
    running: RunningCommand,
    output: CommandOutput,
    /// Contains the processes of the command alone.
    scope: Scope,
}

/// Reason why a command runs no more, or is about to end.
enum CommandRun {
    /// A stop covers the task.
    Stopped,
    /// The time limit has stopped the command, with this receipt.
    TimedOut(Arc<Receipt>),
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

    /// Waits for the end of the command, and writes the events of the task.
    ///
    /// # Cancel safety
    /// Dropping the future stops nothing: the scope ends the command.
    pub(crate) async fn run_to_end(
        mut self,
        cx: &ExecutionCx,
        limit: Option<CommandLimit>,
    ) -> Result<(), ExecutorError> {
        match self.run(cx, limit).await? {
            CommandRun::Stopped => self.end_stopped(cx).await,
            CommandRun::TimedOut(receipt) => self.end_timed_out(cx, receipt).await,
            CommandRun::Exited => return self.end_exited(cx).await,
        }
        Ok(())
    }

    /// Reads the output until the command exits, its time limit stops it, or a stop covers the task.
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
            // The stop is polled first, because endless output must not delay it.
            biased;
            () = cx.scope.stopped() => return Ok(CommandRun::Stopped),
            read = running.read_to_exit(limit, scope, |piece| output.push(piece)) => read,
        };
        let receipt = read.map_err(|error| {
            ExecutorError::new(format!("the command's output could not be read: {error}"))
        })?;
        Ok(match receipt {
            // The stop may have ended the command between the two polls.
            None if cx.scope.is_stopped() => CommandRun::Stopped,
            None => CommandRun::Exited,
            Some(receipt) => CommandRun::TimedOut(receipt),
        })
    }

    /// A stop covers the task, so the task manager ends the task. Stores the output before and after the end of the
    /// command: a command that ignores SIGTERM ends after this future was dropped.
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
        drop(self.running.process.handle().wait_empty().await);
        write(cx, self.result().to_event()).await;
    }

    async fn end_timed_out(&mut self, cx: &ExecutionCx, receipt: Arc<Receipt>) {
        write(cx, self.result().to_event()).await;
        let stopped = StoppedWork {
            receipt,
            message: None,
            error: None,
        };
        write(cx, TaskEvent::Stopped(stopped)).await;
    }

    /// Stops the processes that the command has left, and ends the task.
    async fn end_exited(&mut self, cx: &ExecutionCx) -> Result<(), ExecutorError> {
        let exit = self.running.exit().await;
        exit.map_err(|why| ExecutorError::new(format!("the command did not start: {why}")))?;
        let left = self.running.left_over().await;
        let left_processes: Vec<_> = left.iter().map(LeftProcess::from).collect();
        if !left_processes.is_empty() {
            // A stop of the task may drop this future while the processes end.
            let result = CommandResult {
                left_processes: left_processes.clone(),
                ..self.result()
            };
            write(cx, result.to_event()).await;
        }
        let receipt = self.stop_left().await;
        let result = CommandResult {
            left_processes,
            receipt: Some(Receipt::clone(&receipt)),
            ..self.result()
        };
        write(cx, result.to_event()).await;
        write(cx, TaskEvent::state(TaskState::Completed)).await;
        Ok(())
    }

    /// Stops the remaining processes. Reads their output meanwhile, because a process that blocks on a full pipe cannot
    /// end by itself.
    async fn stop_left(&mut self) -> Arc<Receipt> {
        let cause = Cause::new(CauseKind::Parent).detail("the command has exited");
        let stop = self.scope.stop(StopRequest::new(Extent::Call, cause));
        let Self {
            running, output, ..
        } = self;
        let mut buffer = vec![0; LEFTOVER_READ_BYTES];
        let mut is_open = true;
        loop {
            tokio::select! {
                biased;
                receipt = stop.receipt() => return receipt,
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

/// Writes an event. If the execution has ended, nothing more needs to be stored, and the executor returns soon.
pub(crate) async fn write(cx: &ExecutionCx, event: TaskEvent) {
    if cx.events.write(event).await.is_err() {
        tracing::debug!(task = %cx.task.id, "an event came after the end of its task");
    }
}
