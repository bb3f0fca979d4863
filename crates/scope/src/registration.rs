//! The guard of a registered piece of work, and the move of work to another scope. Work is registered before it runs.
//! The barrier of a stopped scope refuses the registration.

use std::borrow::Cow;

use crate::barrier::NotStarted;
use crate::group::{Node, WorkKey};
use crate::work::{Details, Ending, Force, WorkSpec};

/// A registered piece of work. [`Registration::finish`] records its ending. If the registration is dropped instead, the
/// ending is recorded as dropped.
#[must_use = "dropping a registration says that the work was dropped"]
pub struct Registration {
    node: Node,
    key: WorkKey,
    answered: bool,
    /// Boxed to save memory: every task has this field, but most work has no details.
    details: Option<Box<Details>>,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Registers a piece of work. Fails if the barrier is closed. The check and the registration are one step.
    pub(crate) fn register(
        &self,
        spec: WorkSpec,
        force: Force,
    ) -> Result<Registration, NotStarted> {
        Ok(Registration {
            key: self.add_work(spec, force)?,
            node: self.clone(),
            answered: false,
            details: None,
        })
    }
}

impl Registration {
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) fn key(&self) -> WorkKey {
        self.key
    }

    /// Details of the item, in addition to its state.
    pub fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    /// Records that the work observed the stop at this checkpoint. After that, the work still has to end.
    ///
    /// If no stop covers the work, this function does nothing: without a stop, there is nothing to acknowledge.
    pub fn acknowledge(&self, checkpoint: impl Into<Cow<'static, str>>) {
        let _cause = self.node.acknowledge(self.key, checkpoint.into());
    }

    /// Removes the work from the registry without an ending, because another registration has taken it over.
    pub(crate) fn release(mut self) {
        self.answered = true;
        self.node.release_work(self.key);
    }

    /// Moves the work to another scope. The work is registered in the new scope before it is removed here, so a stop of
    /// either scope always finds the work. If a stop already covers the work here, the work stays here.
    pub(crate) fn move_to(
        mut self,
        node: &Node,
        spec: WorkSpec,
        force: Force,
    ) -> Result<Self, Box<(Self, NotStarted)>> {
        let moved = match node.register(spec, force) {
            Ok(moved) => moved,
            Err(refused) => return Err(Box::new((self, refused))),
        };
        match self.node.release_unless_stopped(self.key) {
            Ok(()) => {
                self.answered = true;
                Ok(moved)
            }
            Err(refused) => {
                moved.release();
                Err(Box::new((self, refused)))
            }
        }
    }

    /// Records the ending that the future returns. For work whose future was dropped, if the evidence of its end comes a
    /// moment later. A stop waits for this ending, and cannot force it, so the future needs a short time limit.
    pub fn finish_later(self, ending: impl Future<Output = Ending> + Send + 'static) {
        let control = self.node.env().control().clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "the work is registered until the future returns"
        )]
        let _the_registration_reports_its_end = control.spawn(async move {
            let ending = ending.await;
            self.finish(ending);
        });
    }

    /// Records the end of the work. After [`Registration::acknowledge`], the ending `Returned` is recorded as
    /// `Acknowledged`.
    pub fn finish(mut self, ending: Ending) {
        self.answered = true;
        let details = self.details.take();
        self.node.end_work(self.key, ending, details);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.answered {
            let ending = if std::thread::panicking() {
                Ending::Panicked
            } else {
                Ending::Dropped
            };
            self.node.end_work(self.key, ending, self.details.take());
        }
    }
}
