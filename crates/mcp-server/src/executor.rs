//! The executor of a command's task: one execution runs one command.
//!
//! The end of a command and a stop compete. The rules are:
//! 1. A stop of the task that is accepted before the executor has seen the exit makes the task `canceled`. The receipt of
//!    that stop then covers the command.
//! 2. An exit that the executor sees first makes the task `completed`. Processes that the command has left are stopped
//!    by a stop of the command alone, and the result contains its receipt. A stop of the task that comes now joins: the
//!    task manager decides which of the two ends the task.
//! 3. A time limit stops the command alone. Its receipt ends the task.
//!
//! A stop may drop the executor after the grace (the time before a stop uses force). Therefore the executor stores the
//! output before it waits for the end of a stopped command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent, HumanDuration, Receipt, error_chain};
use allstop_process::{ExitInfo, ProcessSpec};
use allstop_scope::{Scope, ScopeOptions, StopRequest, WorkSpec};
use allstop_task::model::StoppedWork;
use allstop_task::{ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskEvent, TaskState};
use allstop_tools::{CommandLimit, OutputLimits, RunningCommand, command_name};
use futures::future::BoxFuture;
use ulid::Ulid;

use crate::arguments::CommandArguments;
use crate::output::CommandOutput;
use crate::result::{CommandResult, LeftProcess};

/// Size of one read of the output of processes that a command has left, in bytes.
const LEFTOVER_READ_BYTES: usize = 8 * 1024;

/// Configuration of the commands.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CommandConfig {
    /// The shell, which accepts `-c` and a command.
    pub shell: OsString,
    /// Working directory of commands that name none, and the start of relative ones.
    pub folder: PathBuf,
    /// Variables that commands do not inherit: keys and other secrets, which could reach a model in the output.
    pub env_hidden: Vec<OsString>,
    /// Limits of the output. It is kept in memory, so the limit for a file has no effect.
    pub output: OutputLimits,
}

impl CommandConfig {
    /// Creates a configuration with `/bin/sh`, this folder and the default limits.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            shell: "/bin/sh".into(),
            folder: folder.into(),
            env_hidden: Vec::new(),
            output: OutputLimits::default(),
        }
    }

    /// Sets the variables that commands do not inherit.
    #[must_use]
    pub fn env_hidden(mut self, names: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.env_hidden = names.into_iter().map(Into::into).collect();
        self
    }
}

/// Runs the command in the message of a task. The scope of the execution contains its processes, so that a stop of the
/// task kills them and proves that they are gone.
#[derive(Debug)]
pub struct CommandExecutor {
    config: Arc<CommandConfig>,
}

impl CommandExecutor {
    /// Creates an executor.
    pub fn new(config: CommandConfig) -> Self {
        Self {
            config: Arc::new(config),
        }
    }
}

impl Executor for CommandExecutor {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        let config = Arc::clone(&self.config);
        Box::pin(async move {
            execute(&config, &cx).await?;
            Ok(ExecutorReturn::Finished)
        })
    }
}

async fn execute(config: &CommandConfig, cx: &ExecutionCx) -> Result<(), ExecutorError> {
    let arguments = CommandArguments::of_message(&cx.message)
        .ok_or_else(|| ExecutorError::new("the message of the task is no command"))?;
    let limit = arguments.timeout_ms.map(Duration::from_millis);
    let limit = limit.and_then(CommandLimit::starting_now);
    write(cx, TaskEvent::state(TaskState::Working)).await;
    let unit = WorkSpec::new(ItemKind::ToolCall, "exec")
        .id("command")
        .label(Some(command_name(&arguments.command)));
    // The command has its own scope, so that its time limit, and the end of the processes that it leaves, stop the
    // command but not the executor.
    let scope = cx
        .scope
        .child("command", ScopeOptions::default().unit(unit))
        .map_err(|refused| ExecutorError::new(refused.to_string()))?;
    let mut command = Command {
        running: start(config, &scope, &arguments).await?,
        output: CommandOutput::new(config.output, cx.live_text.clone()),
        scope,
    };
    match command.run(cx, limit).await? {
        CommandRun::Stopped => command.end_stopped(cx).await,
        CommandRun::TimedOut(receipt) => command.end_timed_out(cx, limit, receipt).await,
        CommandRun::Exited => command.end_exited(cx).await,
    }
}

/// Writes an event. If the execution has ended, nothing more needs to be stored, and the executor returns soon.
async fn write(cx: &ExecutionCx, event: TaskEvent) {
    if cx.events.write(event).await.is_err() {
        tracing::debug!(task = %cx.task.id, "an event came after the end of its task");
    }
}

async fn start(
    config: &CommandConfig,
    scope: &Scope,
    arguments: &CommandArguments,
) -> Result<RunningCommand, ExecutorError> {
    let cwd = arguments.cwd.as_ref();
    let cwd = cwd.map_or_else(|| config.folder.clone(), |cwd| config.folder.join(cwd));
    let marker = format!("mcp-{}", Ulid::generate());
    let spec = ProcessSpec::new(config.shell.clone(), marker)
        .args(["-c", &*arguments.command])
        .cwd(cwd)
        .env_hidden(config.env_hidden.clone())
        .envs(arguments.env.clone());
    let name = command_name(&arguments.command);
    let started = RunningCommand::start(scope, name, spec).await;
    started.map_err(|error| ExecutorError::new(error_chain(&error)))
}

/// A started command.
struct Command {
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

impl Command {
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
    async fn end_stopped(&mut self, cx: &ExecutionCx) -> Result<(), ExecutorError> {
        write(cx, self.result().to_event()).await;
        let output = &mut self.output;
        let read = self
            .running
            .read_to_exit(None, &self.scope, |piece| output.push(piece));
        if let Err(error) = read.await {
            tracing::debug!(%error, "the rest of a command's output");
        }
        write(cx, self.result().to_event()).await;
        Ok(())
    }

    async fn end_timed_out(
        &mut self,
        cx: &ExecutionCx,
        limit: Option<CommandLimit>,
        receipt: Arc<Receipt>,
    ) -> Result<(), ExecutorError> {
        write(cx, self.result().to_event()).await;
        let time = limit.map(|limit| HumanDuration(limit.time).to_string());
        let error = format!("timeout of {}", time.unwrap_or_default());
        let stopped = StoppedWork {
            receipt,
            message: None,
            error: Some(error.into()),
        };
        write(cx, TaskEvent::Stopped(stopped)).await;
        Ok(())
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
            output_bytes: self.output.total_bytes(),
            verified: status.empty,
            note: status.evidence_note().map(str::to_owned),
            ..CommandResult::default()
        };
        result.set_exit(status.exited.filter(|exit| *exit != ExitInfo::Unknown));
        result
    }
}
