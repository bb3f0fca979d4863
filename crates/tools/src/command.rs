//! Runs the commands of a model, of hooks and of guardrails, and MCP servers. Commands and servers are started only
//! through this module. A small process, the keeper, may start and watch the processes of a command.
//!
//! A command is spawned in a scope, so every stop of the scope includes the command. A stop sends SIGTERM, waits for
//! its grace period, sends SIGKILL to the remaining processes, and lists the command in its receipt. The output is read
//! continuously, also during a stop, so that the command never blocks on a full pipe.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::terminal_text::is_unsafe;
use allstop_core::{Cause, CauseKind, Extent, Receipt, error_chain};
use allstop_process::{ExitInfo, OutputReader, ProcessSpec, TreeMember};
use allstop_scope::{Process, Scope, SpawnProcessError, StopRequest, WorkSpec};
use tokio::time::Instant;

/// Size of one read from a pipe, in bytes: the default capacity of a pipe.
const PIPE_BYTES: usize = 64 * 1024;

/// Time after the exit of a command in which its descendants may end by themselves. The other processes of a pipeline
/// end a few milliseconds after the command and are not background work.
const SETTLE: Duration = Duration::from_millis(50);

/// Maximum length of a command's name in receipts and lists, in characters: one line of a terminal.
const NAME_CHARS_MAX: usize = 80;

/// Maximum wait for another command to end, if the limit of commands is reached. Most commands are shorter; servers and
/// watchers in the background may never end.
const SLOT_WAIT_MAX: Duration = Duration::from_mins(1);

/// A running command with its output.
#[derive(Debug)]
pub struct RunningCommand {
    /// Processes of the command.
    pub process: Process,
    /// Reader of the command's output.
    pub reader: OutputReader,
}

/// Time limit of a command.
#[derive(Debug, Clone, Copy)]
pub struct CommandLimit {
    /// Duration as requested.
    pub time: Duration,
    until: Instant,
}

impl CommandLimit {
    /// Creates a limit that begins now. `None` if the end of the limit is beyond the range of the clock.
    pub fn starting_now(time: Duration) -> Option<Self> {
        let until = Instant::now().checked_add(time)?;
        Some(Self { time, until })
    }

    /// Waits for the end of the limit. Returns the cause of the stop that follows.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn over(self) -> Cause {
        tokio::time::sleep_until(self.until).await;
        self.cause()
    }

    fn cause(self) -> Cause {
        let detail = format!("timeout of {} s", self.time.as_secs_f64());
        Cause::new(CauseKind::Deadline).detail(detail)
    }
}

impl RunningCommand {
    /// Starts a command in a scope. If the limit of commands is reached, waits until another command has ended.
    ///
    /// # Errors
    /// If a stop covers the scope, the scope is closed, or the operating system refuses. Also if no command ends within a
    /// minute; the error names the limit.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn start(
        scope: &Scope,
        name: impl Into<Arc<str>>,
        mut spec: ProcessSpec,
    ) -> Result<Self, SpawnProcessError> {
        let chosen = scope.containment_of(spec.containment.clone());
        spec.containment = tokio::select! {
            biased;
            // The start returns the reason.
            () = scope.stopped() => spec.containment,
            reserved = chosen.reserved(SLOT_WAIT_MAX) => reserved?,
        };
        Self::start_server(scope, name, spec)
    }

    /// Starts an MCP server in a scope. It does not count for the limit of commands, because it may run for ever.
    ///
    /// # Errors
    /// If a stop covers the scope, the scope is closed, or the operating system refuses.
    pub(crate) fn start_server(
        scope: &Scope,
        name: impl Into<Arc<str>>,
        spec: ProcessSpec,
    ) -> Result<Self, SpawnProcessError> {
        let (process, reader) =
            scope.spawn_process(WorkSpec::new(ItemKind::Process, name), spec)?;
        Ok(Self { process, reader })
    }

    /// Passes the output to `take` until the command itself has exited. A descendant process that keeps the pipe open
    /// causes no delay. After the time limit, stops `scope` and returns the receipt of that stop.
    ///
    /// # Errors
    /// If the output cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call continues to read. A stop that has begun also continues.
    pub async fn read_to_exit(
        &mut self,
        limit: Option<CommandLimit>,
        scope: &Scope,
        take: impl FnMut(&[u8]),
    ) -> io::Result<Option<Arc<Receipt>>> {
        let mut reading = std::pin::pin!(read_to_exit(&mut self.reader, take));
        let Some(limit) = limit else {
            return reading.await.map(|()| None);
        };
        // A `select!` that polls the output first would not work here. Endless output would use up the budget that the
        // runtime gives the task per poll, and a timer never fires without budget.
        if let Ok(read) = tokio::time::timeout_at(limit.until, &mut reading).await {
            return read.map(|()| None);
        }
        let stop = scope.stop(StopRequest::new(Extent::Call, limit.cause()));
        let mut read = false;
        loop {
            tokio::select! {
                // The receipt is polled first, because endless output must not delay it. The rest of the output is read
                // below.
                biased;
                receipt = stop.receipt() => {
                    if receipt.quiet() && !read {
                        reading.await?;
                    }
                    return Ok(Some(receipt));
                }
                end = &mut reading, if !read => {
                    end?;
                    read = true;
                }
            }
        }
    }

    /// Waits for the command's exit status.
    ///
    /// # Errors
    /// If the command never started or its status is unknown. The error is the reason, in one line.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn exit(&self) -> Result<ExitInfo, String> {
        match self.process.exited().await {
            Ok(exit) => Ok(exit),
            // The command may have run: its keeper was killed before the keeper reported a start.
            Err(_) if self.keeper_lost().is_some() => Ok(ExitInfo::Unknown),
            Err(error) => Err(error_chain(&error)),
        }
    }

    /// Text which reports that the keeper of the command was killed; `None` if the keeper was not killed.
    pub fn keeper_lost(&self) -> Option<&'static str> {
        self.process.handle().status().borrow().keeper_lost_note()
    }

    /// True if all processes of the command have ended, and no stop had sent a signal before.
    pub(crate) fn ended_by_itself(&self) -> bool {
        let handle = self.process.handle();
        // The proof comes first: a signal after the proof does not count.
        handle.emptiness().is_some() && handle.strongest_signal().is_none()
    }

    /// Returns the descendants that still run a short time after the command's exit.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn left_over(&self) -> Vec<TreeMember> {
        match tokio::time::timeout(SETTLE, self.process.handle().wait_empty()).await {
            // The process tree is empty, or its state is unknown because the command was stopped.
            Ok(_) => Vec::new(),
            Err(_elapsed) => self.process.members().await,
        }
    }
}

async fn read_to_exit(reader: &mut OutputReader, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; PIPE_BYTES];
    loop {
        match reader.read(&mut buffer).await? {
            0 => return Ok(()),
            len => take(buffer.get(..len).unwrap_or_default()),
        }
    }
}

/// Passes the output to `take` until no process remains that could print.
///
/// # Errors
/// If the output cannot be read.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn read_to_end(
    mut reader: OutputReader,
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    read_to_exit(&mut reader, &mut take).await?;
    let mut buffer = vec![0; PIPE_BYTES];
    loop {
        match reader.read_leftovers(&mut buffer).await? {
            0 => return Ok(()),
            len => take(buffer.get(..len).unwrap_or_default()),
        }
    }
}

/// Name of a command: its first line, bounded, without characters that are unsafe on a terminal.
pub fn command_name(command: &str) -> Arc<str> {
    let line = command.trim().lines().next().unwrap_or_default();
    let plain = |c: char| if is_unsafe(c) { '\u{fffd}' } else { c };
    let mut name: String = line.chars().take(NAME_CHARS_MAX).map(plain).collect();
    if name.len() < command.trim().len() {
        name.push('…');
    }
    name.into()
}

/// Exit code by the convention of shells: 128 plus the number of the signal if a signal killed the command. `None` if
/// the exit is unknown.
pub(crate) fn exit_code(exit: ExitInfo) -> Option<i32> {
    match exit {
        ExitInfo::Code(code) => Some(code),
        ExitInfo::Signal(signal) => Some(128 + signal),
        ExitInfo::Unknown => None,
    }
}

/// Describes an exit status.
pub fn exit_text(exit: ExitInfo) -> String {
    match exit {
        ExitInfo::Code(code) => format!("exit code {code}"),
        ExitInfo::Signal(signal) => format!("killed by signal {signal}"),
        ExitInfo::Unknown => "exit code unknown".to_owned(),
    }
}
