//! One piece of background work, and how it gets out of its call.

use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::ItemKind;
use allstop_core::record::Attachment;
use allstop_core::{CallId, Cause, Extent};
use allstop_scope::process::{OutputReader, ProcessStatus};
use allstop_scope::{NotStarted, Process, Scope, ScopeOptions, Stop, StopOrder, WorkSpec};
use parking_lot::Mutex;

use super::host::BackgroundHost;
use crate::output::BoundedOutput;

/// Bytes read from a pipe at once: what a pipe holds by default.
pub(crate) const PIPE_BYTES: usize = 64 * 1024;

/// Processes that run in the background, with their output.
#[derive(Debug)]
pub struct BackgroundWork {
    /// Its id.
    pub id: BackgroundId,
    /// The call that started it.
    pub call_id: CallId,
    /// For people: the command.
    pub name: Arc<str>,
    /// Whether idle waits for it.
    pub attachment: Attachment,
    /// Its processes.
    pub process: Process,
    /// The file that its output goes to, where there is one.
    pub output_file: Option<PathBuf>,
    scope: Scope,
    output: Arc<Mutex<BoundedOutput>>,
}

impl BackgroundWork {
    /// What it has printed so far, bounded.
    pub fn output(&self) -> String {
        self.output.lock().text()
    }

    /// Whether it runs and is watched.
    pub fn is_running(&self) -> bool {
        let status = self.process.handle().status();
        let status = status.borrow();
        status.empty.is_none() && status.failed.is_none() && !status.detached
    }

    /// Waits until nothing of it is left, or nobody watches it any more, and says what is known of it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&self) -> ProcessStatus {
        // The status says which of the two it was.
        drop(self.process.handle().wait_empty().await);
        self.process.handle().status().borrow().clone()
    }

    /// Stops it and nothing else.
    pub fn stop(&self, cause: Cause) -> Stop {
        self.scope.stop(StopOrder::new(Extent::Subtree, cause))
    }
}

/// What is handed to the host.
pub(crate) struct Handover {
    pub(crate) call_id: CallId,
    pub(crate) name: Arc<str>,
    pub(crate) attachment: Attachment,
    pub(crate) process: Process,
    pub(crate) reader: OutputReader,
    pub(crate) output: BoundedOutput,
}

/// Moves processes from their call to the host.
///
/// # Errors
/// If the host's scope takes nothing any more: then they are still their call's.
pub(crate) fn hand_over(
    host: &dyn BackgroundHost,
    work: Handover,
) -> Result<Arc<BackgroundWork>, NotStarted> {
    let Handover {
        call_id,
        name,
        attachment,
        process,
        reader,
        mut output,
    } = work;
    let id = host.new_id();
    let unit = WorkSpec::new(ItemKind::Background, Arc::clone(&name)).id(id.as_str());
    let options = ScopeOptions {
        unit: Some(unit),
        ..ScopeOptions::default()
    };
    let scope = host.scope().child(id.as_str(), options)?;
    output.open_file();
    let output_file = output.file().map(PathBuf::from);
    let output = Arc::new(Mutex::new(output));
    // The drain first: once the processes have moved, nothing may be left to fail.
    let drain = drain(reader, Arc::clone(&output), scope.clone());
    drop(scope.spawn(WorkSpec::new(ItemKind::Future, "output"), |_| drain)?);
    process.adopt(&scope, WorkSpec::new(ItemKind::Process, Arc::clone(&name)))?;
    let work = BackgroundWork {
        id,
        call_id,
        name,
        attachment,
        process,
        output_file,
        scope,
        output,
    };
    let work = Arc::new(work);
    host.started(Arc::clone(&work));
    Ok(work)
}

/// Reads until nothing is left that could print. A stop does not end it: what is printed while dying is output too.
async fn drain(mut reader: OutputReader, output: Arc<Mutex<BoundedOutput>>, scope: Scope) {
    let mut buffer = vec![0; PIPE_BYTES];
    loop {
        let read = match reader.read(&mut buffer).await {
            Ok(0) => reader.read_leftovers(&mut buffer).await,
            read => read,
        };
        match read {
            Ok(0) => break,
            Ok(len) => output.lock().push(buffer.get(..len).unwrap_or_default()),
            Err(error) => {
                tracing::warn!(%error, "the output of background work could not be read on");
                break;
            }
        }
    }
    scope.close();
}
