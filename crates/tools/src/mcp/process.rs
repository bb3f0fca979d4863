//! The process of an MCP server that Allstop started: its start, its standard error, and its end.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{EndMethod, ItemKind};
use allstop_core::{Cause, CauseKind, Extent, error_chain};
use allstop_process::{OutputReader, ProcessSpec};
use allstop_scope::{Process, Scope, StopRequest, WorkSpec};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::SetOnce;
use tokio::time::timeout;

use super::config::McpOptions;
use super::connection_end::ProcessEnd;
use super::limits::{INPUT_CLOSED_WAIT, STDERR_BYTES_MAX, TERM_WAIT};
use super::pipes::{ServerInput, ServerPipes};
use crate::command::{RunningCommand, exit_text, read_to_end};

/// Time limit of the wait for the exit of a server whose output has ended.
const EXIT_WAIT: Duration = Duration::from_millis(100);

/// Time limit for reading the last output after the exit. Only a child process that outlives the server can delay the
/// read, because the child process can hold the pipe open.
const READ_WAIT: Duration = Duration::from_millis(500);

pub(super) struct ServerProcess {
    process: Process,
    scope: Scope,
    input: ServerInput,
    stderr: Arc<Mutex<Vec<u8>>>,
    stderr_read: Arc<SetOnce<()>>,
}

impl ServerProcess {
    /// Starts the process in `scope`. The scope contains no other work, so a stop of the scope ends only this process.
    pub(super) fn start(
        scope: &Scope,
        name: &str,
        (command, args, env): (&OsString, &[OsString], &[(OsString, OsString)]),
        env_hidden: &[OsString],
        folder: &Path,
        options: &McpOptions,
    ) -> Result<(Self, ServerPipes), String> {
        let pipes = ServerPipes::make(&options.pipe_folder).map_err(|error| {
            let folder = options.pipe_folder.display();
            format!("its pipes cannot be created in {folder}: {error}")
        })?;
        let spec = ProcessSpec::new("/bin/sh", ulid::Ulid::generate().to_string())
            .args(pipes.command(command, args))
            .cwd(folder)
            .envs(env.to_vec())
            .env_hidden(env_hidden.to_vec())
            .containment(options.containment.clone());
        let RunningCommand { process, reader } =
            RunningCommand::start_server(scope, format!("mcp {name}"), spec)
                .map_err(|error| error_chain(&error))?;
        let stderr = Arc::default();
        let stderr_read = Arc::<SetOnce<()>>::default();
        let reading = WorkSpec::new(ItemKind::Future, format!("stderr of mcp {name}"));
        let (into, whole) = (Arc::clone(&stderr), Arc::clone(&stderr_read));
        // The spawn fails if a stop came first. In that case the process is being ended, and its output does not
        // matter.
        drop(scope.spawn_control(reading, async move |_| {
            read(reader, into).await;
            // The value is set only here, so this call cannot fail.
            drop(whole.set(()));
        }));
        let input = pipes.input();
        let server = Self {
            process,
            scope: scope.clone(),
            input,
            stderr,
            stderr_read,
        };
        Ok((server, pipes))
    }

    pub(super) async fn exited(&self) {
        drop(self.process.exited().await);
    }

    /// Resolves when the server itself has exited. Processes that it started may still run.
    pub(super) fn exit(&self) -> BoxFuture<'static, ()> {
        let process = self.process.clone();
        async move { drop(process.exited().await) }.boxed()
    }

    /// Ends the process: closes its input, then sends signals if needed. `None` if a part of the process tree remains.
    pub(super) async fn end(&self, why: &str, by_server: bool) -> Option<ProcessEnd> {
        let handle = self.process.handle();
        self.input.close();
        let mut left_processes = false;
        if timeout(INPUT_CLOSED_WAIT, handle.wait_empty())
            .await
            .is_err()
        {
            left_processes = handle.status().borrow().exited.is_some();
            let cause = Cause::new(CauseKind::Failure).detail(why.to_owned());
            let order = StopRequest::new(Extent::Subtree, cause).grace(TERM_WAIT);
            let _receipt = self.scope.stop(order).receipt().await;
        }
        let unsignalled = if by_server {
            EndMethod::OwnerDied
        } else {
            EndMethod::ConnectionClosed
        };
        Some(ProcessEnd {
            how: handle.strongest_signal().unwrap_or(unsignalled),
            verified: handle.emptiness()?,
            containment: handle.containment(),
            left_processes,
        })
    }

    /// Describes the exit status and the last line on standard error.
    pub(super) async fn last_words(&self) -> Option<String> {
        let exited = timeout(EXIT_WAIT, self.process.exited()).await;
        let exit = match exited.ok()? {
            Ok(exit) => exit_text(exit),
            Err(error) => return Some(error_chain(&error)),
        };
        // The pipe may still hold the last line.
        let _partly_read = timeout(READ_WAIT, self.stderr_read.wait()).await;
        let stderr = String::from_utf8_lossy(&self.stderr.lock()).into_owned();
        let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
        Some(match last {
            Some(line) => format!("{exit}: {}", line.trim()),
            None => exit,
        })
    }
}

/// Reads all output, because a full pipe would block the server. Keeps the end of the output.
async fn read(reader: OutputReader, into: Arc<Mutex<Vec<u8>>>) {
    let keep = |piece: &[u8]| {
        let mut stderr = into.lock();
        stderr.extend_from_slice(piece);
        let old = stderr.len().saturating_sub(STDERR_BYTES_MAX);
        stderr.drain(..old);
    };
    // The only effect of a read error is that less output is kept.
    drop(read_to_end(reader, keep).await);
}
