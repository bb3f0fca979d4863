//! The one way in which commands run: those of a model, of hooks and of guardrails, and the servers of tools.
//!
//! A command is spawned in a scope and so is in every stop of it: SIGTERM, the grace, SIGKILL, and an item of the receipt.
//! Its output is read all along, so that it never blocks on a full pipe, also while it is being stopped.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::terminal_text::is_unsafe;
use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_scope::process::{ExitInfo, Member, OutputReader, ProcessSpec};
use allstop_scope::{Process, Scope, SpawnProcessError, StopOrder, WorkSpec};
use tokio::time::Instant;

/// Bytes read from a pipe at once: what a pipe holds by default.
const PIPE_BYTES: usize = 64 * 1024;

/// How long descendants may take to end after the command has: the rest of a pipeline is a few milliseconds behind, and
/// is no background work.
const SETTLE: Duration = Duration::from_millis(50);

/// The longest name of a command in receipts and lists, in characters: a line of a terminal.
const NAME_CHARS_MAX: usize = 80;

/// A command that runs, with its output.
#[derive(Debug)]
pub struct RunningCommand {
    /// Its processes.
    pub process: Process,
    /// What they print.
    pub reader: OutputReader,
}

/// The time that a command may take.
#[derive(Debug, Clone, Copy)]
pub struct CommandLimit {
    /// As it was asked for.
    pub time: Duration,
    until: Instant,
}

impl CommandLimit {
    /// A limit that begins now. `None`: it is beyond the clock's end.
    pub fn starting_now(time: Duration) -> Option<Self> {
        let until = Instant::now().checked_add(time)?;
        Some(Self { time, until })
    }
}

impl RunningCommand {
    /// Starts a command in a scope.
    ///
    /// # Errors
    /// If a stop covers the scope, it is closed, or the system refuses.
    pub fn start(
        scope: &Scope,
        name: impl Into<Arc<str>>,
        spec: ProcessSpec,
    ) -> Result<Self, SpawnProcessError> {
        let (process, reader) =
            scope.spawn_process(WorkSpec::new(ItemKind::Process, name), spec)?;
        Ok(Self { process, reader })
    }

    /// Gives what is printed to `take`, until the command itself has exited; a descendant that holds the pipe delays
    /// nothing. Past its limit `scope` is stopped, and the receipt of that is the answer.
    ///
    /// # Errors
    /// If the output cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe: called again it goes on. A stop that was begun goes on too.
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
        // Not a `select!` with the output first: output without end would use up the task's budget, and a timer without
        // budget never fires.
        if let Ok(read) = tokio::time::timeout_at(limit.until, &mut reading).await {
            return read.map(|()| None);
        }
        let detail = format!("timeout of {} s", limit.time.as_secs_f64());
        let cause = Cause::new(CauseKind::Deadline).detail(detail);
        let stop = scope.stop(StopOrder::new(Extent::Call, cause));
        let mut read = false;
        loop {
            tokio::select! {
                // The receipt first: output without end must not keep it. What is left of the output is read below.
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

    /// How the command ended, once it has.
    ///
    /// # Errors
    /// If it never started, or nobody can tell, in one line.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn exit(&self) -> Result<ExitInfo, String> {
        match self.process.exited().await {
            Ok(exit) => Ok(exit),
            // Whether it ran is not known: its keeper was killed before it had said so.
            Err(_) if self.keeper_lost().is_some() => Ok(ExitInfo::Unknown),
            Err(error) => Err(chain(&error)),
        }
    }

    /// What is to be said of a command whose keeper was killed.
    pub fn keeper_lost(&self) -> Option<&'static str> {
        self.process.handle().status().borrow().keeper_lost_note()
    }

    /// Descendants that are still there a moment after the command has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn left_over(&self) -> Vec<Member> {
        match tokio::time::timeout(SETTLE, self.process.handle().wait_empty()).await {
            // Empty, or nobody can tell any more: then it was stopped.
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

/// Gives what is printed to `take`, until nothing is left that could print.
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

/// A command as a name: its first line, bounded, without characters that are unsafe on a terminal.
pub fn command_name(command: &str) -> Arc<str> {
    let line = command.trim().lines().next().unwrap_or_default();
    let plain = |c: char| if is_unsafe(c) { '\u{fffd}' } else { c };
    let mut name: String = line.chars().take(NAME_CHARS_MAX).map(plain).collect();
    if name.len() < command.trim().len() {
        name.push('…');
    }
    name.into()
}

/// How a command ended.
pub fn exit_text(exit: ExitInfo) -> String {
    match exit {
        ExitInfo::Code(code) => format!("exit code {code}"),
        ExitInfo::Signal(signal) => format!("killed by signal {signal}"),
        ExitInfo::Unknown => "exit code unknown".to_owned(),
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += ": ";
        text += &error.to_string();
        cause = error.source();
    }
    text
}
