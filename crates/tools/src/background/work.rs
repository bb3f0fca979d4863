//! One unit of background work.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::ItemKind;
use allstop_core::record::{Attachment, BackgroundKind};
use allstop_core::{CallId, Cause, Extent, Timestamp, Usage};
use allstop_scope::{NotStarted, Process, Scope, ScopeOptions, Stop, StopRequest, WorkSpec};
use tokio::sync::SetOnce;

use super::end::BackgroundEnd;
use super::future_work::FutureWorkState;
use super::host::BackgroundHost;
use super::slice::OutputSlice;
use crate::output::SharedOutput;
use crate::permission::Denial;

/// A command or a task in the background, with its output.
#[derive(Debug)]
pub struct BackgroundWork {
    /// Id of the work.
    pub id: BackgroundId,
    /// Call that started the work.
    pub call_id: CallId,
    /// Command line, or purpose of the task, for people.
    pub name: Arc<str>,
    /// Start time of the work.
    pub started_at: Timestamp,
    /// File that receives the output, if any. [`BackgroundWork::output_place`] names the part of the output in the
    /// file.
    pub output_file: Option<PathBuf>,
    pub(super) scope: Scope,
    pub(super) body: WorkBody,
    attachment: Attachment,
    output: Arc<SharedOutput>,
    end: OnceLock<BackgroundEnd>,
    /// Set when the end is final and the output is complete.
    settled: SetOnce<()>,
}

#[derive(Debug)]
pub(super) enum WorkBody {
    Process(Process),
    Task(Arc<FutureWorkState>),
}

pub(super) struct WorkInfo {
    pub(super) call_id: CallId,
    pub(super) name: Arc<str>,
    pub(super) attachment: Attachment,
}

pub(super) struct WorkSlot {
    pub(super) id: BackgroundId,
    pub(super) scope: Scope,
}

impl WorkSlot {
    /// Creates the scope of the work. In the receipt of a stop, the scope is one item with the id of the work.
    pub(super) fn create(host: &dyn BackgroundHost, name: &Arc<str>) -> Result<Self, NotStarted> {
        let id = host.new_id();
        let unit = WorkSpec::new(ItemKind::Background, Arc::clone(name)).id(id.as_str());
        let options = ScopeOptions::default().unit(unit);
        let scope = host.scope().child(id.as_str(), options)?;
        Ok(Self { id, scope })
    }
}

impl BackgroundWork {
    pub(super) fn new(
        slot: WorkSlot,
        info: WorkInfo,
        body: WorkBody,
        output: Arc<SharedOutput>,
    ) -> Arc<Self> {
        let output_file = output.file();
        Arc::new(Self {
            id: slot.id,
            call_id: info.call_id,
            name: info.name,
            started_at: SystemTime::now().into(),
            output_file,
            scope: slot.scope,
            body,
            attachment: info.attachment,
            output,
            end: OnceLock::new(),
            settled: SetOnce::new(),
        })
    }

    /// Reports the start of the work to the host now, and the end later. `end` resolves when the work has ended, or
    /// when this process cannot learn that the work has ended.
    pub(super) fn run(
        self: &Arc<Self>,
        host: &dyn BackgroundHost,
        end: impl Future<Output = ()> + Send + 'static,
    ) {
        host.adopt(Arc::clone(self));
        let changes = host.changes().clone();
        changes.increment();
        let work = Arc::clone(self);
        // This future is spawned as an engine, which a stop never drops, and not as work of the scope. As work, it
        // would be dropped by a stop that uses force, before the processes that it watches have ended.
        drop(self.scope.spawn_engine(async move {
            end.await;
            work.scope.close();
            // The value is set only here, so this call cannot fail.
            drop(work.settled.set(()));
            changes.increment();
        }));
    }

    /// Kind of the work.
    pub fn kind(&self) -> BackgroundKind {
        match self.body {
            WorkBody::Process(_) => BackgroundKind::Shell,
            WorkBody::Task(_) => BackgroundKind::Agent,
        }
    }

    /// Attachment, which determines whether an idle session waits for the work. `Detached` if the work was detached
    /// later.
    pub fn attachment(&self) -> Attachment {
        if self.is_detached() {
            Attachment::Detached
        } else {
            self.attachment
        }
    }

    /// Processes of a command; `None` for a task.
    pub fn process(&self) -> Option<&Process> {
        match &self.body {
            WorkBody::Process(process) => Some(process),
            WorkBody::Task(_) => None,
        }
    }

    /// True if the work was detached, so that it can outlive this process. This process no longer watches detached
    /// work.
    pub fn is_detached(&self) -> bool {
        self.process()
            .is_some_and(|process| process.handle().status().borrow().detached)
    }

    /// True if the work runs and is watched.
    pub fn is_running(&self) -> bool {
        self.end().is_none() && !self.is_detached()
    }

    /// End of the work. `None` while the work runs, and also after the work is detached.
    pub fn end(&self) -> Option<BackgroundEnd> {
        if let Some(end) = self.end.get() {
            return Some(end.clone());
        }
        let end = match &self.body {
            WorkBody::Process(process) => BackgroundEnd::of_process(process)?,
            // A task has ended only if no work runs in its scope, because all work that a task starts there is a part
            // of the task.
            WorkBody::Task(task) => task.end().filter(|_| self.scope.is_quiet())?,
        };
        Some(self.decide(end))
    }

    /// Records the end, unless an end is already recorded. Returns the recorded end.
    pub(super) fn decide(&self, end: BackgroundEnd) -> BackgroundEnd {
        self.end.get_or_init(|| end).clone()
    }

    /// Waits until no part of the work runs and the output is complete, or until this process no longer watches the
    /// work. In the second case the state is `still_running`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&self) -> BackgroundEnd {
        self.settled.wait().await;
        self.end().unwrap_or_else(BackgroundEnd::unwatched)
    }

    /// Output so far. If the output is long, its middle is left out.
    pub fn output(&self) -> String {
        self.output.text()
    }

    /// Output from a byte offset, counted from the start. Reads the output file for bytes that memory no longer holds.
    pub fn output_from(&self, offset: u64, bytes_max: usize) -> OutputSlice {
        OutputSlice::read(&self.output, offset, bytes_max)
    }

    /// Place of the output, such as `output in /tmp/file`, for lists. Names the limit or the error that cut the file,
    /// and the removal of the file. `None` without a file. Reads the folder of the file.
    pub fn output_place(&self) -> Option<String> {
        self.output.place()
    }

    /// Scope of the work.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Tokens that a task has used so far.
    pub fn metered(&self) -> Usage {
        match &self.body {
            WorkBody::Process(_) => Usage::default(),
            WorkBody::Task(task) => task.meter.metered(),
        }
    }

    /// Denied calls of a sub-agent so far.
    pub fn denials(&self) -> Vec<Denial> {
        match &self.body {
            WorkBody::Process(_) => Vec::new(),
            WorkBody::Task(task) => task.meter.denials(),
        }
    }

    /// Stops this work only.
    pub fn stop(&self, cause: Cause) -> Stop {
        self.scope.stop(StopRequest::new(Extent::Subtree, cause))
    }
}
