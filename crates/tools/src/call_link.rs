//! What a running call tells the one who runs it, beside its answer, and what it is told.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use allstop_core::{CallId, Usage};
use parking_lot::Mutex;
use tokio::sync::SetOnce;

/// Hears of a call while it runs. Called on the tool's own thread: must not block.
pub trait CallObserver: Send + Sync {
    /// A piece of output, for eyes.
    fn output(&self, call_id: &CallId, text: &str);

    /// A sign of life.
    fn alive(&self);
}

/// The link between a call and the one who runs it. Clones are the same link; the default one leads nowhere.
#[derive(Clone, Default)]
pub struct CallLink(Option<Arc<Linked>>);

struct Linked {
    call_id: CallId,
    observer: Arc<dyn CallObserver>,
    metered: Mutex<Metered>,
    exit_code: OnceLock<i32>,
    /// Whether the tool would hear if it were asked to go on in the background.
    listens: AtomicBool,
    promoted: SetOnce<()>,
}

/// What a link counts, until another one counts in its place: under one lock, so that each token is counted once.
#[derive(Default)]
struct Metered {
    usage: Usage,
    handed_over: Option<CallLink>,
}

/// The call cannot go on in the background: its tool does not know how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this call cannot go on in the background")]
pub struct NotPromotable;

struct Nobody;

impl CallObserver for Nobody {
    fn output(&self, _call_id: &CallId, _text: &str) {}

    fn alive(&self) {}
}

impl CallLink {
    /// The link of a call.
    pub fn new(call_id: CallId, observer: Arc<dyn CallObserver>) -> Self {
        Self(Some(Arc::new(Linked {
            call_id,
            observer,
            metered: Mutex::default(),
            exit_code: OnceLock::new(),
            listens: AtomicBool::new(false),
            promoted: SetOnce::new(),
        })))
    }

    /// A link to nobody, that only counts what is used: of work that no call waits for.
    pub fn unwatched(call_id: CallId) -> Self {
        Self::new(call_id, Arc::new(Nobody))
    }

    /// From now on what is told here is told to `other`: the call has its answer, and what it had begun goes on there.
    /// What was metered until now stays the call's.
    pub fn hand_over_to(&self, other: &Self) {
        if let Some(linked) = &self.0 {
            linked.metered.lock().handed_over = Some(other.clone());
        }
    }

    /// Shows a piece of output to whoever watches, and gives a sign of life.
    pub fn output(&self, text: &str) {
        let Some(linked) = &self.0 else { return };
        if let Some(other) = linked.handed_over() {
            return other.output(text);
        }
        linked.observer.alive();
        linked.observer.output(&linked.call_id, text);
    }

    /// Gives a sign of life: the call waits for something that does go on.
    pub fn alive(&self) {
        let Some(linked) = &self.0 else { return };
        if let Some(other) = linked.handed_over() {
            return other.alive();
        }
        linked.observer.alive();
    }

    /// Counts tokens that the call has used. They count whatever becomes of the call.
    pub fn meter(&self, usage: Usage) {
        let Some(linked) = &self.0 else { return };
        let mut metered = linked.metered.lock();
        let Some(other) = metered.handed_over.clone() else {
            metered.usage += usage;
            return;
        };
        drop(metered);
        other.meter(usage);
    }

    /// What was metered here so far.
    pub fn metered(&self) -> Usage {
        self.0
            .as_ref()
            .map_or_else(Usage::default, |linked| linked.metered.lock().usage)
    }

    /// Notes the exit code of the command that the call ran to its end. The first one stands.
    pub fn exited(&self, code: i32) {
        if let Some(linked) = &self.0 {
            // Noted before: that stands.
            let _ = linked.exit_code.set(code);
        }
    }

    /// The exit code of the command that the call ran to its end.
    pub fn exit_code(&self) -> Option<i32> {
        self.0.as_ref()?.exit_code.get().copied()
    }

    /// Resolves when the call is asked to go on in the background. A tool that never awaits this cannot be asked.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn promotion(&self) {
        match &self.0 {
            None => std::future::pending().await,
            Some(linked) => {
                linked.listens.store(true, Ordering::Release);
                linked.promoted.wait().await;
            }
        }
    }

    /// Asks the call to go on in the background. Asking twice is asking once.
    ///
    /// # Errors
    /// If its tool does not listen for that.
    pub fn promote(&self) -> Result<(), NotPromotable> {
        match &self.0 {
            Some(linked) if linked.listens.load(Ordering::Acquire) => {
                // Set already: it was asked before.
                drop(linked.promoted.set(()));
                Ok(())
            }
            _ => Err(NotPromotable),
        }
    }
}

impl Linked {
    fn handed_over(&self) -> Option<CallLink> {
        self.metered.lock().handed_over.clone()
    }
}

impl fmt::Debug for CallLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallLink")
            .field(&self.0.as_ref().map(|linked| &linked.call_id))
            .finish()
    }
}
