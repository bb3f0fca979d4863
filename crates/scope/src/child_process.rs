//! Child processes in a scope. Each process is registered, contained, and listed in receipts (the results of stops).
//! Containment means that the process can be killed together with all its descendants.

use std::sync::Arc;

use allstop_core::receipt::{Containment, EndProof, Evidence};
use allstop_process::{
    ContainmentChoice, DetachTreeError, ExitInfo, LaunchError, OutputReader, ProcessDriver,
    ProcessHandle, ProcessSpec, ProcessWaitError, TreeMember, launch,
};

use crate::barrier::NotStarted;
use crate::group::{ListedWork, Node};
use crate::registration::Registration;
use crate::scope::Scope;
use crate::work::{Ending, Force, WorkSpec};

/// Failure to start a process.
#[derive(Debug, thiserror::Error)]
pub enum SpawnProcessError {
    /// The barrier is closed.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// The system refused.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// A running child process with all its descendants. The scope owns the process: dropping this handle changes nothing.
#[derive(Debug, Clone)]
pub struct Process {
    handle: ProcessHandle,
    owner: Arc<parking_lot::Mutex<Option<Registration>>>,
}

impl Scope {
    /// Containment of a process that starts in this scope: the choice itself, or the containment of the tree if the
    /// choice is [`ContainmentChoice::Inherit`].
    pub fn containment_of(&self, choice: ContainmentChoice) -> ContainmentChoice {
        match choice {
            ContainmentChoice::Inherit => self.env().options.containment.clone(),
            own => own,
        }
    }

    /// Starts a child process with the containment that `spec` selects: by default, the containment of the tree. The work
    /// ends when the last descendant has ended, not when the process itself exits.
    ///
    /// # Errors
    /// If a stop covers this scope, the scope is closed, or the system refuses.
    pub fn spawn_process(
        &self,
        work: WorkSpec,
        mut spec: ProcessSpec,
    ) -> Result<(Process, OutputReader), SpawnProcessError> {
        spec.containment = self.containment_of(spec.containment);
        // The process is registered before it is launched. If the process starts, every later stop covers it. If a stop
        // was accepted before the registration, the process does not start.
        let registration = self.node().register(work, Force::AbortSoon)?;
        let (handle, driver, output) = match launch(spec) {
            Ok(launched) => launched,
            Err(error) => {
                registration.finish(Ending::Returned);
                return Err(error.into());
            }
        };
        let meanwhile = self
            .node()
            .set_force(registration.key(), Force::Process(handle.clone()));
        if meanwhile.stopped {
            handle.ask();
        }
        if meanwhile.forced {
            handle.force();
        }
        let owner = Arc::new(parking_lot::Mutex::new(Some(registration)));
        self.drive(driver, Arc::clone(&owner), handle.clone());
        Ok((Process { handle, owner }, output))
    }

    /// Searches for the processes of all commands in this scope and below it. A dry run that follows lists the processes
    /// that were found; otherwise it lists those of the start.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn find_processes(&self) {
        for process in processes_running(self.node()) {
            drop(process.members().await);
        }
    }

    /// Attaches a process tree that another process left running, so that a stop of this scope covers the tree.
    ///
    /// # Errors
    /// If a stop covers this scope, or the scope is closed.
    pub fn attach_process(
        &self,
        work: WorkSpec,
        (handle, driver): (ProcessHandle, ProcessDriver),
    ) -> Result<Process, NotStarted> {
        let force = Force::Process(handle.clone());
        let registration = self.node().register(work, force)?;
        let owner = Arc::new(parking_lot::Mutex::new(Some(registration)));
        self.drive(driver, Arc::clone(&owner), handle.clone());
        Ok(Process { handle, owner })
    }

    fn drive(
        &self,
        driver: ProcessDriver,
        owner: Arc<parking_lot::Mutex<Option<Registration>>>,
        handle: ProcessHandle,
    ) {
        let drive = async move {
            driver.await;
            let registration = owner.lock().take();
            if let Some(registration) = registration {
                account(registration, &handle);
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that spawns; ends with the process"
        )]
        drop(self.env().control().spawn(drive));
    }
}

/// Process trees that run now in a scope and below it.
fn processes_running(scope: &Node) -> Vec<ProcessHandle> {
    let mut processes = Vec::new();
    let mut nodes = vec![scope.clone()];
    while let Some(node) = nodes.pop() {
        nodes.extend(node.children());
        node.list(|_, listed| {
            if let ListedWork::Running(entry) = listed
                && let Force::Process(process) = &entry.force
            {
                processes.push(process.clone());
            }
        });
    }
    processes
}

/// Records the end of a process.
fn account(mut registration: Registration, handle: &ProcessHandle) {
    let status = handle.status();
    let status = status.borrow();
    let details = registration.details_mut();
    details.containment = Some(handle.containment());
    let how = status.ended_by(handle.strongest_signal());
    if let Some(note) = status.evidence_note() {
        details.note = Some(note.into());
        if status.empty == Some(EndProof::ProcessGroupEmpty) {
            // This evidence comes from a weaker level of containment than a keeper, which is a process that adopts
            // every descendant.
            details.containment = Some(Containment::GroupAndMarker);
        }
    }
    if status.detached {
        // A stop that was accepted before the detach covers the process, and must list it.
        details.note = Some("it was detached, and keeps running".into());
    }
    registration.finish(match (status.empty, how) {
        (Some(verified), Some(how)) => Ending::Stopped {
            how,
            evidence: Evidence::verified(verified),
        },
        (Some(_), None) => Ending::Returned,
        (None, _) if status.failed.is_some() => Ending::Returned,
        (None, _) => Ending::WatcherGone,
    });
}

impl Process {
    /// Handle of the process.
    pub fn handle(&self) -> &ProcessHandle {
        &self.handle
    }

    /// Resolves when the process itself has exited; descendants may still run.
    ///
    /// # Errors
    /// If the process never started, was detached, or is no longer watched.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn exited(&self) -> Result<ExitInfo, ProcessWaitError> {
        self.handle.wait_exited().await
    }

    /// Members of the tree that are running now.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn members(&self) -> Vec<TreeMember> {
        self.handle.members().await
    }

    /// Moves the running tree to another scope, as background work that outlives its call. From now on, a stop of the
    /// old scope does not cover the tree. If a stop of the old scope was accepted before the move, the tree stays in
    /// the old scope.
    ///
    /// # Errors
    /// If a stop covers the old scope, or the other scope is stopped or closed. The tree then stays in the old scope.
    pub fn adopt(&self, scope: &Scope, work: WorkSpec) -> Result<(), NotStarted> {
        let mut owner = self.owner.lock();
        let Some(old) = owner.take() else {
            return Ok(()); // The process has ended in the meantime.
        };
        let force = Force::Process(self.handle.clone());
        match old.move_to(scope.node(), work, force) {
            Ok(new) => {
                *owner = Some(new);
                Ok(())
            }
            Err(stayed) => {
                let (old, refused) = *stayed;
                *owner = Some(old);
                Err(refused)
            }
        }
    }

    /// Detaches the process, so that it outlives its owner. The further output of the process is written to a file.
    /// From now on, no scope covers the process. Store its [`ProcessHandle::identity`] to find the process again.
    ///
    /// # Errors
    /// If the containment cannot detach the process.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped before it completes, the process may or may not be detached.
    pub async fn detach(&self, output: &std::path::Path) -> Result<(), DetachTreeError> {
        self.handle.detach(output).await?;
        let registration = self.owner.lock().take();
        if let Some(registration) = registration {
            account(registration, &self.handle);
        }
        Ok(())
    }
}
