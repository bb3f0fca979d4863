//! `shell`: a command, contained, bounded and accounted for.
//!
//! The call ends when the shell does: a descendant that holds its output delays nothing. What still runs then becomes
//! background work of the session, named to the model. A command that takes longer than its own `timeout_s` is stopped
//! on the ladder, with all its descendants, and the turn goes on. A command that is asked to go on in the background is
//! handed over while it runs; then its `timeout_s` ends it no more.

mod foreground;
mod hidden;
mod printing;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::Effect;
use allstop_core::record::Attachment;
use allstop_scope::Scope;
use allstop_scope::process::{ContainmentChoice, ProcessSpec};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::background::{BackgroundHost, BackgroundWork, Handover, hand_over};
use crate::command::{RunningCommand, chain, command_name};
use crate::output::{BoundedOutput, OutputFolder, OutputLimits};
use crate::schema::schema_of;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};

/// Arguments of `shell`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The command, as given to `sh -c`.
    #[schemars(length(min = 1))]
    command: String,
    /// Seconds after which the command and all it started are stopped.
    #[schemars(range(min = 0.001))]
    timeout_s: Option<f64>,
    /// Whether to return at once and let the command run in the background.
    background: Option<bool>,
}

/// How the shell tool runs commands.
#[derive(Debug, Clone)]
pub struct ShellConfig {
    /// The shell, which takes `-c` and a command.
    pub program: OsString,
    /// Where commands start: the working directory.
    pub folder: PathBuf,
    /// What is added to the environment.
    pub env: Vec<(OsString, OsString)>,
    /// What commands do not inherit: keys and other secrets, which would reach the model with their output.
    pub env_hidden: Vec<OsString>,
    /// How processes are contained.
    pub containment: ContainmentChoice,
    /// How much output is kept where.
    pub output: OutputLimits,
    /// Where long output goes.
    pub output_folder: Arc<OutputFolder>,
    /// Whether idle waits for what runs in the background.
    pub attachment: Attachment,
}

impl ShellConfig {
    /// `/bin/sh` in this folder, contained without a helper program, with the usual bounds.
    pub fn new(folder: impl Into<PathBuf>, output_folder: Arc<OutputFolder>) -> Self {
        Self {
            program: "/bin/sh".into(),
            folder: folder.into(),
            env: Vec::new(),
            env_hidden: Vec::new(),
            containment: ContainmentChoice::GroupAndMarker,
            output: OutputLimits::default(),
            output_folder,
            attachment: Attachment::Attached,
        }
    }
}

/// Runs commands.
#[derive(Debug)]
pub struct ShellTool {
    spec: ToolSpec,
    config: ShellConfig,
    host: Arc<dyn BackgroundHost>,
}

impl ShellTool {
    /// Commands run as configured; what outlives its call goes to the host.
    pub fn new(config: ShellConfig, host: Arc<dyn BackgroundHost>) -> Self {
        let spec = ToolSpec {
            name: "shell".into(),
            description: "Runs a command with `sh -c` in the working directory, without input, and answers with what \
                it printed and its exit code. A server or a watcher belongs into the background."
                .into(),
            input_schema: schema_of::<Arguments>(),
            effect: Effect::Irreversible,
            timeout: None,
            // Models that ask for several commands at once are told by their providers that these run side by side.
            parallel: true,
        };
        Self { spec, config, host }
    }

    fn start(&self, scope: &Scope, command: &str) -> Result<RunningCommand, ToolError> {
        let spec = ProcessSpec {
            program: self.config.program.clone(),
            args: vec!["-c".into(), command.into()],
            cwd: self.config.folder.clone(),
            env: self.config.env.clone(),
            env_hidden: self.config.env_hidden.clone(),
            marker: ulid::Ulid::generate().to_string().into(),
            containment: self.config.containment.clone(),
        };
        RunningCommand::start(scope, command_name(command), spec)
            .map_err(|error| ToolError::new(chain(&error)))
    }

    async fn background(
        &self,
        invocation: &ToolInvocation,
        command: &str,
    ) -> Result<String, ToolError> {
        let running = self.start(&invocation.scope, command)?;
        running
            .process
            .handle()
            .wait_started()
            .await
            .map_err(|error| ToolError::new(chain(&*error)))?;
        let folder = Arc::clone(&self.config.output_folder);
        let output = BoundedOutput::with_file_now(self.config.output, folder);
        let work = Handover {
            call_id: invocation.call_id.clone(),
            name: command_name(command),
            attachment: self.config.attachment,
            running,
            output,
        };
        let work = hand_over(&*self.host, work)
            .map_err(|refused| ToolError::new(refused.why.to_string()))?;
        Ok(runs_in_background(&work))
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
            let arguments = Arguments::deserialize(&*invocation.arguments)
                .map_err(|error| wrong(error.to_string()))?;
            let timeout = arguments
                .timeout_s
                .map(Duration::try_from_secs_f64)
                .transpose();
            let timeout = timeout.map_err(|error| wrong(format!("`timeout_s`: {error}")))?;
            let content = if arguments.background == Some(true) {
                if timeout.is_some() {
                    return Err(wrong(
                        "`timeout_s` does not go with `background`".to_owned(),
                    ));
                }
                self.background(&invocation, &arguments.command).await?
            } else {
                self.foreground(&invocation, &arguments.command, timeout)
                    .await?
            };
            Ok(ToolOutput {
                content: content.into(),
            })
        })
    }
}
