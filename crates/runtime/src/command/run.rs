//! One command, from its start to its end.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::process::{ExitInfo, OutputReader, ProcessSpec};
use allstop_scope::{Process, Scope, ScopeOptions, StopOrder, WorkSpec};

use super::CommandSettings;
use super::event::Event;
use crate::error::chain;

/// How much of a command's output is kept, in bytes: a reason that somebody reads. The rest is read and dropped.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// Bytes read from the pipe at once: what a pipe holds by default.
const PIPE_BYTES: usize = 64 * 1024;
/// How long descendants may take to end after the command has: the rest of a pipeline is a few milliseconds behind.
const SETTLE: Duration = Duration::from_millis(50);
/// How long what a command left behind is asked to end before it is forced: nobody needs it any more, and the turn
/// waits.
const LEFT_OVER_GRACE: Duration = Duration::from_millis(200);
/// The longest name of a command in receipts, in characters: a line of a terminal.
const NAME_CHARS_MAX: usize = 80;

/// A command that is run at each event.
#[derive(Debug, Clone)]
pub(super) struct Command {
    /// For receipts and messages.
    pub(super) name: Arc<str>,
    /// As given to `sh -c`.
    pub(super) text: Arc<str>,
    pub(super) limit: Duration,
    pub(super) settings: CommandSettings,
}

/// What a command came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    /// Exit code 0.
    Passed,
    /// Exit code 2, with what it printed.
    Denied { output: String },
    /// Anything else, in one line.
    Failed { why: String },
}

impl Command {
    pub(super) fn new(command: &str, limit: Duration, settings: &CommandSettings) -> Self {
        Self {
            name: name_of(command),
            text: command.into(),
            limit,
            settings: settings.clone(),
        }
    }

    /// Where long events go.
    pub(super) fn event_folder(&self) -> &Path {
        &self.settings.event_folder
    }

    /// Runs it in `scope`, to its end or to its limit of time.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the process to the scope, whose stop ends it.
    pub(super) async fn run(&self, scope: &Scope, event: io::Result<Event>) -> CommandEnd {
        let failed = |why: String| CommandEnd::Failed { why };
        let event = match event {
            Ok(event) => event,
            Err(error) => return failed(format!("its event could not be written: {error}")),
        };
        // A scope of its own, so that its limit of time stops the command and not the turn.
        let scope = match scope.child(Arc::clone(&self.name), ScopeOptions::default()) {
            Ok(scope) => scope,
            Err(refused) => return failed(refused.to_string()),
        };
        let work = WorkSpec::new(ItemKind::Process, Arc::clone(&self.name));
        let (process, reader) = match scope.spawn_process(work, self.spec(&event)) {
            Ok(started) => started,
            Err(error) => return failed(chain(&error)),
        };
        match tokio::time::timeout(self.limit, to_exit(&process, reader)).await {
            Ok(Ok((exit, output))) => {
                end_left_over(&scope, &process).await;
                scope.close();
                verdict(exit, &output)
            }
            Ok(Err(why)) => failed(why),
            Err(_elapsed) => failed(self.time_out(&scope).await),
        }
    }

    fn spec(&self, event: &Event) -> ProcessSpec {
        ProcessSpec {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), (&*self.text).into()],
            cwd: self.settings.folder.clone(),
            env: vec![event.variable()],
            env_hidden: Vec::new(),
            marker: ulid::Ulid::generate().to_string().into(),
            containment: self.settings.containment.clone(),
        }
    }

    async fn time_out(&self, scope: &Scope) -> String {
        let detail = format!("timeout of {:?} of `{}`", self.limit, self.name);
        let cause = Cause::new(CauseKind::Deadline).detail(detail);
        let receipt = scope
            .stop(StopOrder::new(Extent::Call, cause))
            .receipt()
            .await;
        let became = if receipt.quiet() {
            "it and all that it had started were stopped"
        } else {
            "not all of it could be stopped"
        };
        format!("it ran longer than {:?}: {became}", self.limit)
    }
}

/// Reads until the command itself has ended; a descendant that holds the pipe delays nothing.
async fn to_exit(
    process: &Process,
    mut reader: OutputReader,
) -> Result<(ExitInfo, Vec<u8>), String> {
    let mut buffer = vec![0; PIPE_BYTES];
    let mut output = Vec::new();
    loop {
        match reader.read(&mut buffer).await {
            Ok(0) => break,
            Ok(len) => {
                let room = OUTPUT_BYTES_MAX - output.len();
                output.extend(buffer.iter().take(len.min(room)));
            }
            Err(error) => return Err(format!("its output could not be read: {error}")),
        }
    }
    match process.exited().await {
        Ok(exit) => Ok((exit, output)),
        Err(error) => Err(chain(&error)),
    }
}

/// Nothing outlives its hook.
async fn end_left_over(scope: &Scope, process: &Process) {
    if tokio::time::timeout(SETTLE, process.handle().wait_empty())
        .await
        .is_ok()
    {
        return;
    }
    let cause = Cause::new(CauseKind::Parent).detail("its command has ended");
    let order = StopOrder::new(Extent::Call, cause).grace(LEFT_OVER_GRACE);
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
        ExitInfo::Code(code) => format!("exit code {code}"),
        ExitInfo::Signal(signal) => format!("killed by signal {signal}"),
        ExitInfo::Unknown => "exit code unknown".to_owned(),
    };
    let why = if output.is_empty() {
        ended
    } else {
        format!("{ended}: {output}")
    };
    CommandEnd::Failed { why }
}

/// What was printed, for people: nothing that a terminal would obey.
fn one_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

fn name_of(command: &str) -> Arc<str> {
    let line = command.trim().lines().next().unwrap_or_default();
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut name: String = line.chars().take(NAME_CHARS_MAX).map(plain).collect();
    if name.len() < command.trim().len() {
        name.push('…');
    }
    name.into()
}
