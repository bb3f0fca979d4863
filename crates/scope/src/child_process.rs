//! A child process in a scope: registered, contained, accounted for.

use std::sync::Arc;

use allstop_core::receipt::{Evidence, How};

use crate::gate::NotStarted;
use crate::process::{
    self, ExitInfo, LaunchError, Member, OutputReader, ProcessHandle, ProcessSpec, Signal,
    Unobserved,
};
use crate::scope::Scope;
use crate::work::{Ending, Force, Registration, WorkSpec};

/// Why a process was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnProcessError {
    /// The barrier is closed.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// The system refused.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// A running child process with all its descendants. The scope owns it: dropping this handle changes nothing.
#[derive(Debug, Clone)]
pub struct Process {
    handle: ProcessHandle,
    owner: Arc<parking_lot::Mutex<Option<Registration>>>,
}

impl Scope {
    /// Starts a child process, contained as the tree says unless `spec` says otherwise. The work ends when its last
    /// descendant has ended, not when the process itself exits.
    ///
    /// # Errors
    /// If a stop covers this scope, it is closed, or the system refuses.
    pub fn spawn_process(
        &self,
        work: WorkSpec,
        spec: ProcessSpec,
    ) -> Result<(Process, OutputReader), SpawnProcessError> {
        // The barrier is asked before the launch and again with it: a process that a stop overtook between the two is
        // killed unregistered, and never seen by the caller.
        self.check()?;
        let (handle, driver, output) = process::launch(spec)?;
        let registration = match self.node().register(work, Force::Process(handle.clone())) {
            Ok(registration) => registration,
            Err(refused) => {
                handle.force();
                self.drive(driver, None, handle);
                return Err(refused.into());
            }
        };
        let owner = Arc::new(parking_lot::Mutex::new(Some(registration)));
        self.drive(driver, Some(Arc::clone(&owner)), handle.clone());
        Ok((Process { handle, owner }, output))
    }

    fn drive(
        &self,
        driver: process::ProcessDriver,
        owner: Option<Arc<parking_lot::Mutex<Option<Registration>>>>,
        handle: ProcessHandle,
    ) {
        let drive = async move {
            driver.await;
            let Some(mut registration) = owner.and_then(|owner| owner.lock().take()) else {
                return;
            };
            registration.details_mut().containment = Some(handle.containment());
            let status = handle.status();
            let status = status.borrow();
            registration.finish(match (status.empty, handle.strongest_signal()) {
                (Some(verified), Some(signal)) => Ending::Stopped {
                    how: signal,
                    evidence: Evidence::verified(verified),
                },
                (Some(_), None) => Ending::Returned,
                (None, _) if status.failed.is_some() => Ending::Returned,
                (None, _) => Ending::WatcherGone,
            });
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that spawns; ends with the process"
        )]
        drop(self.env().options.control.spawn(drive));
    }
}

impl Process {
    /// The process behind it.
    pub fn handle(&self) -> &ProcessHandle {
        &self.handle
    }

    /// Resolves when the process itself has exited; descendants may still run.
    ///
    /// # Errors
    /// If it never started, was detached, or nobody watches it any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn exited(&self) -> Result<ExitInfo, Unobserved> {
        self.handle.wait_exited().await
    }

    /// What of it runs now.
    pub fn members(&self) -> Vec<Member> {
        self.handle.members()
    }

    /// Hands what still runs of it over to another scope: background work that outlives its call. From now on it
    /// belongs there, and a stop of the old scope does not cover it. A stop of the old scope that was accepted first
    /// keeps it: what a stop covers does not slip away.
    ///
    /// # Errors
    /// If a stop covers the old scope, or the other scope takes nothing any more: then it stays where it was.
    pub fn adopt(&self, scope: &Scope, work: WorkSpec) -> Result<(), NotStarted> {
        let mut owner = self.owner.lock();
        let Some(old) = owner.take() else {
            return Ok(()); // It has ended meanwhile.
        };
        let new = match scope
            .node()
            .register(work, Force::Process(self.handle.clone()))
        {
            Ok(new) => new,
            Err(refused) => {
                *owner = Some(old);
                return Err(refused);
            }
        };
        match old.release_unless_stopped() {
            Ok(()) => {
                *owner = Some(new);
                Ok(())
            }
            Err(stopped) => {
                let (old, refused) = *stopped;
                new.release();
                *owner = Some(old);
                Err(refused)
            }
        }
    }

    /// Lets the process outlive its owner, its output going to a file from now on. Nothing of this tree covers it any
    /// more: whoever calls this keeps its [`ProcessHandle::identity`].
    ///
    /// # Errors
    /// If the containment cannot let go of it.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped halfway, it may or may not have been let go.
    pub async fn detach(&self, output: &std::path::Path) -> Result<(), process::DetachError> {
        self.handle.detach(output).await?;
        if let Some(registration) = self.owner.lock().take() {
            registration.release();
        }
        Ok(())
    }
}

impl From<Signal> for How {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Term => Self::Sigterm,
            Signal::Kill => Self::Sigkill,
        }
    }
}
