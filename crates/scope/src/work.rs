//! One piece of work: its description, its ending, and the means to end the work by force. A receipt is the result of a
//! stop, and has one item for each piece of work.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;

use allstop_core::Effect;
use allstop_core::receipt::{Containment, EndMethod, Evidence, ItemKind};

use crate::sync::{AbortHandle, ProcessHandle};

/// Description of a piece of work for receipts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkSpec {
    /// Kind of the work.
    pub kind: ItemKind,
    /// Name for people.
    pub name: Arc<str>,
    /// Id in receipts. If `None`, a numbered id is generated. If a unit (a scope that is one item of a receipt) is
    /// inside another unit, the path of the inner unit contains the ids of both.
    pub id: Option<Arc<str>>,
    /// Description of a call, for people: see [`call_label`](allstop_core::call_label).
    pub label: Option<Arc<str>>,
    /// Effect of repeating the work. `None` if an unknown outcome of the work does not matter.
    pub effect: Option<Effect>,
}

impl WorkSpec {
    /// Work with this kind and this name.
    pub fn new(kind: ItemKind, name: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            name: name.into(),
            id: None,
            label: None,
            effect: None,
        }
    }

    /// Sets the id.
    #[must_use]
    pub fn id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the label.
    #[must_use]
    pub fn label(mut self, label: Option<Arc<str>>) -> Self {
        self.label = label;
        self
    }

    /// Sets the effect.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// Id of this work in receipts. `seq` is the number of this work among all work of the tree.
    pub(crate) fn item_id(&self, seq: u64) -> Arc<str> {
        match &self.id {
            Some(id) => Arc::clone(id),
            None => numbered(self.kind, seq),
        }
    }
}

/// Formats an id such as `future_7` with a single allocation, because a receipt may contain ten thousand ids.
fn numbered(kind: ItemKind, seq: u64) -> Arc<str> {
    // Enough space for the longest kind, an underscore and 20 digits.
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
    /// The work returned by itself.
    Returned,
    /// The work observed the stop at this checkpoint, and returned.
    Acknowledged(Cow<'static, str>),
    /// The future was dropped.
    Dropped,
    /// A stop was accepted before the first poll of the future, and the future was dropped without a poll.
    NotBegun,
    /// The work panicked.
    Panicked,
    /// The work was ended from outside.
    Stopped {
        /// Method that ended it.
        how: EndMethod,
        /// Evidence of the end.
        evidence: Evidence,
    },
    /// The remote was asked and has not confirmed.
    NotConfirmed,
    /// The watcher is gone, so it is unknown whether the work has ended.
    WatcherGone,
}

/// Means to end a piece of work by force.
pub(crate) enum Force {
    /// Drops the future of the work.
    Abort(AbortHandle),
    /// Drops the future of the work. The task of the future is still being created.
    AbortSoon,
    /// Sends signals.
    Process(ProcessHandle),
    /// No means: a thread cannot be forced.
    Thread,
    /// No means: work on another machine cannot be forced. The closure asks the other machine to stop.
    Remote(Arc<dyn Fn() + Send + Sync>),
    /// The work is polled by an enclosing future that has its own registration. Force ends that future.
    Inline,
}

impl Force {
    /// True if a stop has to ask the work individually, because the work does not observe the signal of its scope.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self, Self::Process(_) | Self::Remote(_))
    }
}

/// Details of an item of a receipt, in addition to its state.
#[derive(Debug, Clone, Default)]
pub struct Details {
    /// The level of containment of a process.
    pub containment: Option<Containment>,
    /// Tokens received after the stop was accepted.
    pub tokens_received_after_stop: Option<u64>,
    /// Note for the reader.
    pub note: Option<Cow<'static, str>>,
}
