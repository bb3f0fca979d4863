//! The executor of a command's task: one execution runs one command. The rules for the end of a command are in
//! [`crate::command`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::error_chain;
use allstop_core::receipt::ItemKind;
use allstop_process::ProcessSpec;
use allstop_scope::{Scope, ScopeOptions, WorkSpec};
use allstop_task::{ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskEvent, TaskState};
use allstop_tools::{CommandLimit, OutputLimits, RunningCommand, command_name};
use futures::future::BoxFuture;
use ulid::Ulid;

use crate::arguments::CommandArguments;
use crate::command::{StartedCommand, write};
use crate::result::COMMAND_ITEM;

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

async fn execute(config: &Arc<CommandConfig>, cx: &ExecutionCx) -> Result<(), ExecutorError> {
    let arguments = CommandArguments::of_message(&cx.message)
        .ok_or_else(|| ExecutorError::new("the message of the task is no command"))?;
    let limit = arguments.timeout_ms.map(Duration::from_millis);
    let limit = limit.and_then(CommandLimit::starting_now);
    write(cx, TaskEvent::state(TaskState::Working)).await;
    let unit = WorkSpec::new(ItemKind::ToolCall, "exec")
        .id(COMMAND_ITEM)
        .label(Some(command_name(&arguments.command)));
    // The command has its own scope, so that the end of the processes that it leaves does not stop the executor.
    let scope = cx
        .scope
        .child(cx.scope.label(), ScopeOptions::default().unit(unit))
        .map_err(|refused| ExecutorError::new(refused.to_string()))?;
    let (config, cx_of_work) = (Arc::clone(config), cx.clone());
    let spec = WorkSpec::new(ItemKind::Future, "output of the command");
    let following = scope.spawn_begun(spec, move |work| async move {
        let scope = work.scope().clone();
        let running = start(&config, &scope, &arguments).await?;
        let command = StartedCommand::new(running, config.output, scope, &cx_of_work);
        command.follow(&cx_of_work, limit).await
    });
    let following = following.map_err(|refused| ExecutorError::new(refused.to_string()))?;
    let followed = following.await.map_err(|lost| {
        ExecutorError::new(format!("the command's output could not be read: {lost}"))
    })?;
    if let Some(exited) = followed? {
        exited.end_exited(cx).await;
    }
    Ok(())
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
