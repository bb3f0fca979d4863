//! One piece of work: what it is, how it ends, and the guard that must be answered.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;

use allstop_core::Effect;
use allstop_core::receipt::{
    Containment, EndMethod, EndProof, Evidence, ItemKind, ItemState, NotStoppedReason,
};
use tokio::time::Instant;

use crate::cell::{Node, Seat, WorkKey};
use crate::gate::NotStarted;
use crate::sync::{AbortHandle, ProcessHandle};

/// Description of a piece of work for receipts.
#[derive(Debug, Clone)]
pub struct WorkSpec {
    /// Kind of the work.
    pub kind: ItemKind,
    /// For people.
    pub name: Arc<str>,
    /// Its id in receipts; `None`: a number is made up. A unit in another is called by the ids of both.
    pub id: Option<Arc<str>>,
    /// Effect of repeating the work, where an unknown outcome matters.
    pub effect: Option<Effect>,
}

impl WorkSpec {
    /// Work of this kind and name.
    pub fn new(kind: ItemKind, name: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            name: name.into(),
            id: None,
            effect: None,
        }
    }

    /// The same, with an id of its own.
    #[must_use]
    pub fn id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The same, with an effect.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// Id in receipts of this work, which is number `seq` of all.
    pub(crate) fn item_id(&self, seq: u64) -> Arc<str> {
        match &self.id {
            Some(id) => Arc::clone(id),
            None => numbered(self.kind, seq),
        }
    }
}

/// `future_7`, in one allocation: a receipt may have ten thousand of them.
fn numbered(kind: ItemKind, seq: u64) -> Arc<str> {
    // The longest kind, an underscore and 20 digits are shorter.
    let mut room = [0; 40];
    let mut rest = room.as_mut_slice();
    let written = write!(rest, "{}_{seq}", kind.as_str());
    written.expect("there is room for it");
    let len = 40 - rest.len();
    let text = room.get(..len).map(str::from_utf8);
    text.and_then(Result::ok).unwrap_or_default().into()
}

/// End of a piece of work.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// It returned by itself.
    Returned,
    /// It heard the stop at this checkpoint, and returned.
    Acknowledged(Cow<'static, str>),
    /// Its future was dropped.
    Dropped,
    /// Its future was dropped before its first poll: a stop was accepted in between.
    NotBegun,
    /// It panicked.
    Panicked,
    /// It was ended from outside, as said.
    Stopped {
        /// By what.
        how: EndMethod,
        /// Evidence of the end.
        evidence: Evidence,
    },
    /// The remote was asked and has not confirmed.
    NotConfirmed,
    /// Its watcher is gone, so that its end is not known.
    WatcherGone,
}

/// Means to end a piece of work by force.
pub(crate) enum Force {
    /// By dropping the future that it is in.
    Abort(AbortHandle),
    /// By dropping the future that it is in, whose task is being made at this moment.
    AbortSoon,
    /// By signals.
    Process(ProcessHandle),
    /// Not at all: a thread.
    Thread,
    /// Not at all: somebody else's machine. The closure asks it.
    Remote(Arc<dyn Fn() + Send + Sync>),
    /// By ending the future that it is polled in, which is registered itself.
    Inline,
}

/// An entry of a scope's registry.
pub(crate) struct WorkEntry {
    pub(crate) seat: Seat,
    pub(crate) seq: u64,
    pub(crate) spec: WorkSpec,
    pub(crate) force: Force,
    /// Set by the work itself when it heard the stop.
    pub(crate) acknowledged: Option<Cow<'static, str>>,
    /// Set when force was asked for while the task was being made.
    pub(crate) forced: bool,
}

impl Force {
    /// True if a stop has to ask it: nothing in the work observes the signal of its scope.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self, Self::Process(_) | Self::Remote(_))
    }
}

impl WorkEntry {
    /// State of the work while it runs.
    pub(crate) fn running_state(&self) -> ItemState {
        match &self.force {
            Force::Abort(_) | Force::AbortSoon | Force::Inline => ItemState::StillRunning {
                why: NotStoppedReason::BlocksItsThread,
            },
            Force::Process(_) => ItemState::StillRunning {
                why: NotStoppedReason::ProcessesLeft,
            },
            Force::Thread => ItemState::StillRunning {
                why: NotStoppedReason::BlockingThread,
            },
            Force::Remote(_) => ItemState::Unreachable {
                why: NotStoppedReason::NotConfirmed,
            },
        }
    }
}

/// Record of work that ended under a stop.
pub(crate) struct EndedWork {
    pub(crate) seat: Seat,
    pub(crate) seq: u64,
    pub(crate) spec: WorkSpec,
    pub(crate) ending: Ending,
    pub(crate) at: Instant,
    pub(crate) details: Option<Box<Details>>,
    pub(crate) was_thread: bool,
}

/// Details of an item of a receipt beside its state.
#[derive(Debug, Clone, Default)]
pub struct Details {
    /// The level of containment of a process.
    pub containment: Option<Containment>,
    /// Tokens that came in after the stop was accepted.
    pub tokens_received_after_stop: Option<u64>,
    /// Note for the reader.
    pub note: Option<Cow<'static, str>>,
}

impl EndedWork {
    /// The state for a receipt, `after` the request.
    pub(crate) fn state(&self, after: std::time::Duration) -> ItemState {
        let after_ms = after.into();
        let stopped = |how, evidence| ItemState::Stopped {
            how,
            evidence,
            after_ms,
        };
        let returned = if self.was_thread {
            EndProof::ThreadEnded
        } else {
            EndProof::TaskEnded
        };
        match &self.ending {
            Ending::Returned => ItemState::Finished {
                after_ms: Some(after_ms),
            },
            Ending::Acknowledged(checkpoint) => stopped(
                EndMethod::Acknowledged,
                Evidence::verified(returned).and_observed_at(checkpoint.clone()),
            ),
            Ending::Dropped => stopped(
                EndMethod::Dropped,
                Evidence::verified(EndProof::FutureDropped),
            ),
            Ending::NotBegun => {
                let verified = if self.was_thread {
                    EndProof::ThreadEnded
                } else {
                    EndProof::FutureDropped
                };
                stopped(EndMethod::NotBegun, Evidence::verified(verified))
            }
            Ending::Panicked => stopped(EndMethod::Failed, Evidence::verified(returned)),
            Ending::Stopped { how, evidence } => stopped(*how, evidence.clone()),
            Ending::NotConfirmed => ItemState::Unreachable {
                why: NotStoppedReason::NotConfirmed,
            },
            Ending::WatcherGone => ItemState::StillRunning {
                why: NotStoppedReason::WatcherGone,
            },
        }
    }
}

/// A registered piece of work. It must be answered: [`Registration::finish`] says how it ended, and a drop says that
/// it was dropped.
#[must_use = "dropping a registration says that the work was dropped"]
pub struct Registration {
    node: Node,
    key: WorkKey,
    answered: bool,
    /// Most work has none: a task is as large as what it may carry.
    details: Option<Box<Details>>,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Registration {
    pub(crate) fn new(node: Node, key: WorkKey) -> Self {
        Self {
            node,
            key,
            answered: false,
            details: None,
        }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) fn key(&self) -> WorkKey {
        self.key
    }

    /// Details of the item beside its state.
    pub fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    /// Says that the work heard the stop, at this checkpoint. It still has to end.
    ///
    /// Without a stop that covers it this changes nothing: nothing is acknowledged before it was asked.
    pub fn acknowledge(&self, checkpoint: impl Into<Cow<'static, str>>) {
        let _cause = self.node.acknowledge(self.key, checkpoint.into());
    }

    /// Takes the work out of the registry without an ending: it belongs to somebody else now.
    pub(crate) fn release(mut self) {
        self.answered = true;
        self.node.release_work(self.key);
    }

    /// Moves the work to another scope. It is registered there before it is released here, so that at every moment a
    /// stop of either finds it; and what a stop covers here does not slip away.
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

    /// Says how the work ended. `Returned` after [`Registration::acknowledge`] becomes `Acknowledged`.
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
