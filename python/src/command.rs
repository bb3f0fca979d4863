//! Commands: process trees without an agent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop::core::receipt::ItemKind;
use allstop::process::{ContainmentChoice, ExitInfo, OutputReader, ProcessSpec};
use allstop::scope::{Scope, ScopeOptions, StopRequest, WorkSpec};
use allstop::{Cause, CauseKind, Extent};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::agent::{CreatorProcess, error_text};
use crate::json;
use crate::mailbox::{Mailbox, MessageBody, PythonMailbox};
use crate::stopping::PythonStop;

/// Maximum number of bytes of the output that are kept. The rest is read and counted, so that the command does not block.
const OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes per read, the capacity of a pipe.
const READ_LEN: usize = 64 * 1024;

/// A command, as Python writes it.
#[derive(Debug, Deserialize)]
struct CommandDescription {
    program: String,
    args: Vec<String>,
    cwd: PathBuf,
    env: BTreeMap<String, String>,
    grace_s: f64,
}

/// A running command. Dropping this value stops its process tree with cause `disconnect`.
#[pyclass(frozen, name = "Command")]
pub(crate) struct PythonCommand {
    scope: Scope,
    grace: Duration,
    mailbox: Arc<Mailbox>,
    creator: CreatorProcess,
}

#[pymethods]
impl PythonCommand {
    /// Starts a command. `finished` receives its end as JSON, and its output.
    #[new]
    fn new(mailbox: &PythonMailbox, description: &str, finished: Py<PyAny>) -> PyResult<Self> {
        let mailbox = Arc::clone(&mailbox.0);
        let command: CommandDescription = json::value(description)?;
        let grace = json::seconds(command.grace_s)?;
        let label = format!("command/{}", command.program);
        let scope = mailbox
            .command_scope()?
            .child(label, ScopeOptions::default())
            .map_err(|refused| PyRuntimeError::new_err(refused.to_string()))?;
        let running = run(scope.clone(), command, grace, mailbox.containment());
        let (to, finished) = (Arc::clone(&mailbox), Arc::new(finished));
        let _the_control_thread_owns_it = scope.spawn_engine(async move {
            let (end, output) = running.await;
            to.answer(&finished, MessageBody::Output(end.to_string(), output));
        });
        Ok(Self {
            scope,
            grace,
            mailbox,
            creator: CreatorProcess::this(),
        })
    }

    /// Stops the process tree. `received` gets the receipt as JSON.
    fn stop(
        &self,
        kind: &str,
        detail: Option<String>,
        received: Py<PyAny>,
    ) -> PyResult<PythonStop> {
        let stop = self
            .scope
            .stop(request(json::cause(kind, detail)?, self.grace));
        let forced = stop.clone();
        Ok(PythonStop::new(
            &self.scope,
            (Arc::clone(&self.mailbox), Arc::new(received)),
            move || forced.force(),
            async move { stop.receipt().await },
        ))
    }
}

impl Drop for PythonCommand {
    fn drop(&mut self) {
        if self.creator.is_this() {
            let cause = Cause::new(CauseKind::Disconnect);
            drop(self.scope.stop(request(cause, self.grace)));
            self.scope.close();
        }
    }
}

fn request(cause: Cause, grace: Duration) -> StopRequest {
    StopRequest::new(Extent::Process, cause).grace(grace)
}

/// Runs a command. Returns its end as JSON, and its output.
async fn run(
    scope: Scope,
    command: CommandDescription,
    grace: Duration,
    containment: ContainmentChoice,
) -> (Value, Vec<u8>) {
    let work = WorkSpec::new(ItemKind::Process, command.program.as_str());
    let spec = ProcessSpec::new(
        command.program,
        format!("python-{}", ulid::Ulid::generate()),
    )
    .args(command.args)
    .cwd(command.cwd)
    .envs(command.env)
    .containment(containment);
    let (process, output) = match scope.spawn_process(work, spec) {
        Ok(started) => started,
        Err(error) => return (json!({"error": error_text(&error)}), Vec::new()),
    };
    if let Err(error) = process.handle().wait_started().await {
        return (json!({"error": error_text(&*error)}), Vec::new());
    }
    let (output, missed_bytes) = read(output).await;
    let exit = match process.handle().wait_exited().await {
        Ok(ExitInfo::Code(code)) => json!({"code": code}),
        Ok(ExitInfo::Signal(signal)) => json!({"signal": signal}),
        Ok(ExitInfo::Unknown) => json!({}),
        Err(error) => return (json!({"error": error.to_string()}), output),
    };
    let mut end = json!({"exit": exit, "missed_bytes": missed_bytes});
    if !scope.is_stopped() {
        // Ends descendants that outlive the command.
        let cause = Cause::new(CauseKind::Parent).detail("its command has ended");
        let receipt = scope.stop(request(cause, grace)).await;
        end["receipt"] = json!(*receipt);
    }
    (end, output)
}

/// Reads the output until the command exits. Returns the number of bytes that were not kept.
async fn read(mut output: OutputReader) -> (Vec<u8>, usize) {
    let mut kept = Vec::new();
    let mut missed = 0;
    let mut buffer = vec![0; READ_LEN];
    // An error of the pipe ends the output. The exit of the command is known anyway.
    while let Ok(len @ 1..) = output.read(&mut buffer).await {
        let read = buffer.get(..len).unwrap_or_default();
        let free = OUTPUT_BYTES_MAX - kept.len();
        let (fits, rest) = read.split_at(free.min(read.len()));
        kept.extend_from_slice(fits);
        missed += rest.len();
    }
    (kept, missed)
}
