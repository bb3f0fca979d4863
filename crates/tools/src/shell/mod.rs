//! The tool `shell`: runs a command with bounded output. The processes of the command are contained: a stop can kill
//! them and prove that they are gone. The receipt of a stop lists them.
//!
//! The call ends when the shell exits. A descendant process that keeps the shell's output open does not delay this end.
//! Processes that still run at that time become background work of the session, and the answer names them. A command
//! that exceeds the argument `timeout_s` of its call is stopped with all its descendants, and the turn continues. A
//! running command can be promoted to background work. Then the owner of the session takes the command over, and
//! `timeout_s` no longer applies.

mod foreground;
mod hidden;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::record::Attachment;
use allstop_core::{CallId, Effect, error_chain};
use allstop_process::{ContainmentChoice, ProcessSpec};
use allstop_scope::{Scope, ScopeOptions, SpawnProcessError};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::background::{BackgroundHost, BackgroundWork, Handover, hand_over};
use crate::command::{RunningCommand, command_name};
use crate::names;
use crate::output::{BoundedOutput, OutputFolder, OutputLimits};
use crate::schema::schema_of;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};

/// Arguments of `shell`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShellArguments {
    /// The command, as given to `sh -c`.
    #[schemars(length(min = 1))]
    command: String,
    /// Seconds after which the command and everything it started are stopped.
    #[schemars(range(min = 0.001))]
    timeout_s: Option<f64>,
    /// True to return at once and run the command in the background.
    background: Option<bool>,
}

/// Configuration of the shell tool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShellConfig {
    /// The shell, which accepts `-c` and a command.
    pub program: OsString,
    /// Working directory of the commands.
    pub folder: PathBuf,
    /// Variables to add to the environment.
    pub env: Vec<(OsString, OsString)>,
    /// Variables that commands do not inherit: keys and other secrets, which could reach the model in the commands'
    /// output.
    pub env_hidden: Vec<OsString>,
    /// Containment of the processes: the means to kill them and to prove that they are gone.
    pub containment: ContainmentChoice,
    /// Limits of the output.
    pub output: OutputLimits,
    /// Folder for long output.
    pub output_folder: Arc<OutputFolder>,
    /// Attachment of background work, which determines whether an idle session waits for the work.
    pub attachment: Attachment,
    /// Beginning of the markers of the tool's processes, such as the id of the session. A marker is a text in the
    /// environment of a process, and the processes can be found by its beginning.
    pub marker_prefix: Arc<str>,
}

impl ShellConfig {
    /// Creates a configuration with `/bin/sh`, this folder and the default limits. The scope of a call contains its
    /// processes.
    pub fn new(folder: impl Into<PathBuf>, output_folder: Arc<OutputFolder>) -> Self {
        Self {
            program: "/bin/sh".into(),
            folder: folder.into(),
            env: Vec::new(),
            env_hidden: Vec::new(),
            containment: ContainmentChoice::Inherit,
            output: OutputLimits::default(),
            output_folder,
            attachment: Attachment::Attached,
            marker_prefix: "".into(),
        }
    }

    /// Sets the shell.
    #[must_use]
    pub fn program(mut self, program: impl Into<OsString>) -> Self {
        self.program = program.into();
        self
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the variables that commands do not inherit.
    #[must_use]
    pub fn env_hidden(mut self, names: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.env_hidden = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the containment of the processes.
    #[must_use]
    pub fn containment(mut self, containment: ContainmentChoice) -> Self {
        self.containment = containment;
        self
    }

    /// Sets the beginning of the markers of the tool's processes.
    #[must_use]
    pub fn marker_prefix(mut self, marker_prefix: impl Into<Arc<str>>) -> Self {
        self.marker_prefix = marker_prefix.into();
        self
    }
}

/// The tool `shell`, which runs commands.
#[derive(Debug)]
pub struct ShellTool {
    spec: ToolSpec,
    config: ShellConfig,
    host: Arc<dyn BackgroundHost>,
}

impl ShellTool {
    /// Creates the tool. The background host takes over processes that still run after their call.
    pub fn new(config: ShellConfig, host: Arc<dyn BackgroundHost>) -> Self {
        let spec = ToolSpec {
            name: names::SHELL.into(),
            description: "Runs a command with `sh -c` in the working directory, without input, and returns its output \
                and its exit code. Run servers and watchers in the background."
                .into(),
            input_schema: schema_of::<ShellArguments>(),
            effect: Effect::Irreversible,
            timeout: None,
            // Providers document that several calls in one step run concurrently, so models expect concurrent calls.
            parallel: true,
            name_in_rules: None,
            mcp: None,
        };
        Self { spec, config, host }
    }

    async fn start(&self, scope: &Scope, command: &str) -> Result<RunningCommand, ToolError> {
        let spec = ProcessSpec::new(
            self.config.program.clone(),
            format!("{}{}", self.config.marker_prefix, ulid::Ulid::generate()),
        )
        .args(["-c", command])
        .cwd(self.config.folder.clone())
        .envs(self.config.env.clone())
        .env_hidden(self.config.env_hidden.clone())
        .containment(self.config.containment.clone());
        RunningCommand::start(scope, command_name(command), spec)
            .await
            .map_err(|error| match &error {
                SpawnProcessError::NotStarted(_) => ToolError::not_started(error_chain(&error)),
                SpawnProcessError::Launch(_) => ToolError::new(error_chain(&error)),
            })
    }

    /// Starts a command that a person or a program has requested, as background work of the host.
    ///
    /// # Errors
    /// Returns an error if the command cannot be started, or the host accepts no more work.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the command may run until the scope of the host is stopped.
    pub async fn start_requested(
        &self,
        call_id: CallId,
        command: &str,
    ) -> Result<Arc<BackgroundWork>, ToolError> {
        let scope = self.host.scope();
        let scope = scope.child("requested command", ScopeOptions::default());
        let scope = scope.map_err(|refused| ToolError::not_started(refused.to_string()))?;
        let started = self.start_in_background(&scope, call_id, command).await;
        scope.close();
        started
    }

    async fn start_in_background(
        &self,
        scope: &Scope,
        call_id: CallId,
        command: &str,
    ) -> Result<Arc<BackgroundWork>, ToolError> {
        let running = self.start(scope, command).await?;
        running
            .process
            .handle()
            .wait_started()
            .await
            .map_err(|error| ToolError::new(error_chain(&*error)))?;
        let folder = Arc::clone(&self.config.output_folder);
        let output = BoundedOutput::with_file_now(self.config.output, folder);
        let work = Handover {
            call_id,
            name: command_name(command),
            attachment: self.config.attachment,
            running,
            output,
        };
        hand_over(&*self.host, work).map_err(|refused| {
            // The command runs until the stop ends it, so its effects are possible.
            let cause = refused.why.cause().map(ToString::to_string);
            let cause = cause.unwrap_or_else(|| "its session is closed".to_owned());
            ToolError::new(format!("the command had started, and is stopped: {cause}"))
        })
    }
}

fn runs_in_background(work: &BackgroundWork) -> String {
    let file = work
        .output_file
        .as_ref()
        .map(|file| format!("; its output goes to {}", file.display()));
    format!(
        "{} runs in the background{}",
        work.id,
        file.unwrap_or_default()
    )
}

impl Tool for ShellTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let wrong =
                |error: String| ToolError::new(format!("wrong arguments for `shell`: {error}"));
            let arguments = ShellArguments::deserialize(&*invocation.arguments)
                .map_err(|error| wrong(error.to_string()))?;
            let timeout = arguments
                .timeout_s
                .map(Duration::try_from_secs_f64)
                .transpose();
            let timeout = timeout.map_err(|error| wrong(format!("`timeout_s`: {error}")))?;
            let content = if arguments.background == Some(true) {
                if timeout.is_some() {
                    return Err(wrong(
                        "`timeout_s` cannot be combined with `background`".to_owned(),
                    ));
                }
                let call_id = invocation.call_id.clone();
                let work = self.start_in_background(&invocation.scope, call_id, &arguments.command);
                runs_in_background(&*work.await?)
            } else {
                self.foreground(&invocation, &arguments.command, timeout)
                    .await?
            };
            Ok(content.into())
        })
    }
}
