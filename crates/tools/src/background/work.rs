//! One piece of background work.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::ItemKind;
use allstop_core::record::{Attachment, BackgroundKind};
use allstop_core::{CallId, Cause, Extent, Usage};
use allstop_scope::{NotStarted, Process, Scope, ScopeOptions, Stop, StopOrder, WorkSpec};
use tokio::sync::SetOnce;

use super::end::BackgroundEnd;
use super::host::BackgroundHost;
use super::slice::OutputSlice;
use super::task::TaskState;
use crate::output::SharedOutput;

/// A command or a task that runs in the background, with its output.
#[derive(Debug)]
pub struct BackgroundWork {
    /// Its id.
    pub id: BackgroundId,
    /// The call that started it.
    pub call_id: CallId,
    /// For people: the command, or what the task is for.
    pub name: Arc<str>,
    /// The file that its output goes to, where there is one.
    pub output_file: Option<PathBuf>,
    pub(super) scope: Scope,
    pub(super) body: Body,
    attachment: Attachment,
    output: Arc<SharedOutput>,
    end: OnceLock<BackgroundEnd>,
    /// Set when nothing more will be learnt of it, its last output included.
    settled: SetOnce<()>,
}

/// What the work is.
#[derive(Debug)]
pub(super) enum Body {
    Process(Process),
    Task(Arc<TaskState>),
}

/// What a host is told of new work.
pub(super) struct About {
    pub(super) call_id: CallId,
    pub(super) name: Arc<str>,
    pub(super) attachment: Attachment,
}

/// The place of new work: an id and a scope.
pub(super) struct Place {
    pub(super) id: BackgroundId,
    pub(super) scope: Scope,
}

impl Place {
    /// One item of a receipt, under the id of the work.
    pub(super) fn below(host: &dyn BackgroundHost, name: &Arc<str>) -> Result<Self, NotStarted> {
        let id = host.new_id();
        let unit = WorkSpec::new(ItemKind::Background, Arc::clone(name)).id(id.as_str());
        let options = ScopeOptions {
            unit: Some(unit),
            ..ScopeOptions::default()
        };
        let scope = host.scope().child(id.as_str(), options)?;
        Ok(Self { id, scope })
    }
}

impl BackgroundWork {
    pub(super) fn new(
        place: Place,
        about: About,
        body: Body,
        output: Arc<SharedOutput>,
    ) -> Arc<Self> {
        let output_file = output.file();
        Arc::new(Self {
            id: place.id,
            call_id: about.call_id,
            name: about.name,
            output_file,
            scope: place.scope,
            body,
            attachment: about.attachment,
            output,
            end: OnceLock::new(),
            settled: SetOnce::new(),
        })
    }

    /// Tells the host of it, and sees to it that its end is told too. `end` resolves when it has ended, or when nobody
    /// here will ever know.
    pub(super) fn run(
        self: &Arc<Self>,
        host: &dyn BackgroundHost,
        end: impl Future<Output = ()> + Send + 'static,
    ) {
        host.started(Arc::clone(self));
        let changes = host.changes().clone();
        changes.one_more();
        let work = Arc::clone(self);
        // No work of the scope: a force would end it before what it watches.
        drop(self.scope.spawn_engine(async move {
            end.await;
            work.scope.close();
            // Set once: only here.
            drop(work.settled.set(()));
            changes.one_more();
        }));
    }

    /// What it is.
    pub fn kind(&self) -> BackgroundKind {
        match self.body {
            Body::Process(_) => BackgroundKind::Shell,
            Body::Task(_) => BackgroundKind::Agent,
        }
    }

    /// Whether idle waits for it. Work that was let go is detached.
    pub fn attachment(&self) -> Attachment {
        if self.is_let_go() {
            Attachment::Detached
        } else {
            self.attachment
        }
    }

    /// Its processes, where it is a command.
    pub fn process(&self) -> Option<&Process> {
        match &self.body {
            Body::Process(process) => Some(process),
            Body::Task(_) => None,
        }
    }

    /// Whether it was let go to outlive this process, which does not watch it any more.
    pub fn is_let_go(&self) -> bool {
        self.process()
            .is_some_and(|process| process.handle().status().borrow().detached)
    }

    /// Whether it runs and is watched.
    pub fn is_running(&self) -> bool {
        self.end().is_none() && !self.is_let_go()
    }

    /// How it ended; `None` while it runs, and for ever once it was let go.
    pub fn end(&self) -> Option<BackgroundEnd> {
        if let Some(end) = self.end.get() {
            return Some(end.clone());
        }
        let end = match &self.body {
            Body::Process(process) => BackgroundEnd::of_process(process)?,
            // What it started in its scope is a part of it.
            Body::Task(task) => task.end().filter(|_| self.scope.is_quiet())?,
        };
        Some(self.decide(end))
    }

    /// The first decision stands.
    pub(super) fn decide(&self, end: BackgroundEnd) -> BackgroundEnd {
        self.end.get_or_init(|| end).clone()
    }

    /// Waits until nothing of it is left and its output is complete, or nobody watches it any more: then the state is
    /// `still_running`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&self) -> BackgroundEnd {
        self.settled.wait().await;
        self.end().unwrap_or_else(BackgroundEnd::unseen)
    }

    /// What it has printed so far, bounded.
    pub fn output(&self) -> String {
        self.output.text()
    }

    /// Its output from a byte on, counted from its start. Reads the output file where memory has it no more.
    pub fn output_from(&self, offset: u64, bytes_max: usize) -> OutputSlice {
        OutputSlice::read(&self.output, offset, bytes_max)
    }

    /// The scope that it runs in.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// What a task has used so far.
    pub fn metered(&self) -> Usage {
        match &self.body {
            Body::Process(_) => Usage::default(),
            Body::Task(task) => task.link.metered(),
        }
    }

    /// Stops it and nothing else.
    pub fn stop(&self, cause: Cause) -> Stop {
        self.scope.stop(StopOrder::new(Extent::Subtree, cause))
    }
}
