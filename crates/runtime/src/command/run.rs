//! One run of a command of a hook or of a guardrail, from its start to its end.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, CauseKind, Extent, Receipt, error_chain};
use allstop_process::{ExitInfo, ProcessSpec};
use allstop_scope::{Scope, ScopeOptions, StopRequest};
use allstop_tools::{CommandLimit, RunningCommand, command_name, exit_text};

use super::CommandSettings;
use super::event::CommandEvent;

/// Maximum size of the kept output of a command, in bytes: enough for a readable reason. The rest is read and dropped.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// Grace period of leftover processes before SIGKILL. Short, because the processes serve no purpose and the turn waits.
const LEFT_OVER_GRACE: Duration = Duration::from_millis(200);

/// A command that runs at each event.
#[derive(Debug, Clone)]
pub(super) struct UserCommand {
    /// Name of the command in receipts of stops and in messages.
    pub(super) name: Arc<str>,
    /// Script, as passed to `sh -c`.
    pub(super) text: Arc<str>,
    pub(super) limit: Duration,
    pub(super) settings: CommandSettings,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    /// Exit code 0.
    Passed,
    /// Exit code 2, with the command's output.
    Denied { output: String },
    /// Any other result, with the reason as one line.
    Failed { why: String },
}

impl UserCommand {
    pub(super) fn new(command: &str, limit: Duration, settings: &CommandSettings) -> Self {
        Self {
            name: command_name(command),
            text: command.into(),
            limit,
            settings: settings.clone(),
        }
    }

    pub(super) fn event_folder(&self) -> &Path {
        &self.settings.event_folder
    }

    /// Runs the command in `scope` until its end or its time limit.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the process in the scope; a stop of the scope ends the process.
    pub(super) async fn run(&self, scope: &Scope, event: io::Result<CommandEvent>) -> CommandEnd {
        let failed = |why: String| CommandEnd::Failed { why };
        let event = match event {
            Ok(event) => event,
            Err(error) => return failed(format!("its event could not be written: {error}")),
        };
        // A child scope, so that the time limit stops the command and not the turn.
        let scope = match scope.child(Arc::clone(&self.name), ScopeOptions::default()) {
            Ok(scope) => scope,
            Err(refused) => return failed(refused.to_string()),
        };
        let started = RunningCommand::start(&scope, Arc::clone(&self.name), self.spec(&event));
        let mut running = match started.await {
            Ok(running) => running,
            Err(error) => return failed(error_chain(&error)),
        };
        let mut output = Vec::new();
        let keep = |piece: &[u8]| {
            let room = OUTPUT_BYTES_MAX - output.len();
            output.extend(piece.iter().take(room));
        };
        let limit = CommandLimit::starting_now(self.limit);
        match running.read_to_exit(limit, &scope, keep).await {
            Err(error) => return failed(format!("its output could not be read: {error}")),
            Ok(Some(receipt)) => return failed(self.timed_out(&receipt)),
            Ok(None) => {}
        }
        let exit = match running.exit().await {
            Ok(exit) => exit,
            Err(why) => return failed(why),
        };
        if !running.left_over().await.is_empty() {
            end_left_over(&scope).await;
        }
        scope.close();
        verdict(exit, &output)
    }

    fn spec(&self, event: &CommandEvent) -> ProcessSpec {
        ProcessSpec::new("/bin/sh", ulid::Ulid::generate().to_string())
            .args(["-c", &*self.text])
            .cwd(self.settings.folder.clone())
            .envs([event.variable()])
            .containment(self.settings.containment.clone())
    }

    fn timed_out(&self, receipt: &Receipt) -> String {
        let became = if receipt.quiet() {
            "it and everything it started were stopped"
        } else {
            "not all of it could be stopped"
        };
        format!("it exceeded its limit of {:?}: {became}", self.limit)
    }
}

/// Ends the processes that a command left running, so that no process outlives its hook.
async fn end_left_over(scope: &Scope) {
    let cause = Cause::new(CauseKind::Parent).detail("its command has ended");
    let order = StopRequest::new(Extent::Call, cause).grace(LEFT_OVER_GRACE);
    let receipt = scope.stop(order).receipt().await;
    if !receipt.quiet() {
        tracing::warn!(scope = %scope.label(), "a command left something behind that cannot be ended");
    }
}

fn verdict(exit: ExitInfo, output: &[u8]) -> CommandEnd {
    let output = one_line(output);
    let ended = match exit {
        ExitInfo::Code(0) => return CommandEnd::Passed,
        ExitInfo::Code(2) => return CommandEnd::Denied { output },
        exit => exit_text(exit),
    };
    let why = if output.is_empty() {
        ended
    } else {
        format!("{ended}: {output}")
    };
    CommandEnd::Failed { why }
}

/// Returns the output as one readable line, without control characters.
fn one_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}
