//! Side channel of a running call: output, progress, heartbeat, usage, effect, and promotion to the background.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use allstop_core::{CallId, Usage};
use parking_lot::Mutex;
use tokio::sync::SetOnce;

use crate::background::{BackgroundHost, CallMeter};
use crate::call_journal::{CallJournal, CopiedJournal};
use crate::call_progress::CallProgress;
use crate::effect::FileChange;
#[cfg(feature = "shell")]
use crate::file_state::FileState;
use crate::permission::{Denial, Prompter};

/// Observer of a running call. Its methods run on the thread of the tool and must not block.
pub trait CallObserver: Send + Sync {
    /// A piece of output, for display.
    fn output(&self, call_id: &CallId, output: &[u8]);

    /// Progress, for display. Later progress replaces earlier progress.
    fn progress(&self, call_id: &CallId, progress: &CallProgress);

    /// A heartbeat: the call is still active.
    fn heartbeat(&self);

    /// Host of the background work that the call may start. `None` if the call belongs to no session.
    fn background(&self) -> Option<Arc<dyn BackgroundHost>> {
        None
    }

    /// Prompter for the questions of a tool's server. `None` if no person can be asked.
    fn prompter(&self) -> Option<Arc<dyn Prompter>> {
        None
    }

    /// Journal for the calls of a sub-agent that runs in the call. `None` if the call belongs to no turn.
    fn journal(&self) -> Option<Arc<dyn CallJournal>> {
        None
    }
}

/// Link between a call and its caller. Clones share one link; the default link is not connected.
#[derive(Clone, Default)]
pub struct CallLink(Option<Arc<CallLinkInner>>);

struct CallLinkInner {
    call_id: CallId,
    observer: Arc<dyn CallObserver>,
    metered: Mutex<Metered>,
    exit_code: OnceLock<i32>,
    change: OnceLock<Arc<FileChange>>,
    /// Also gets the calls of a sub-agent that runs in the call.
    journal_copy: OnceLock<Arc<dyn CallJournal>>,
    #[cfg(feature = "shell")]
    /// State of the file when the permission question showed it.
    shown: OnceLock<FileState>,
    /// True if the tool waits for a promotion to the background.
    is_promotable: AtomicBool,
    promoted: SetOnce<()>,
}

/// Usage and denials that a link has counted before its handover to another link. The fields share one lock, so that
/// each token and each denial is counted exactly once.
#[derive(Default)]
struct Metered {
    usage: Usage,
    /// The step limit of the sub-agents bounds the length.
    denials: Vec<Denial>,
    handed_over: Option<CallLink>,
}

/// Error of [`CallLink::promote`]: the tool does not wait for a promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this call cannot continue in the background")]
pub struct NotPromotable;

struct NullObserver;

impl CallObserver for NullObserver {
    fn output(&self, _call_id: &CallId, _output: &[u8]) {}

    fn progress(&self, _call_id: &CallId, _progress: &CallProgress) {}

    fn heartbeat(&self) {}
}

impl CallLink {
    /// Creates the link of a call.
    pub fn new(call_id: CallId, observer: Arc<dyn CallObserver>) -> Self {
        Self(Some(Arc::new(CallLinkInner {
            call_id,
            observer,
            metered: Mutex::default(),
            exit_code: OnceLock::new(),
            change: OnceLock::new(),
            journal_copy: OnceLock::new(),
            #[cfg(feature = "shell")]
            shown: OnceLock::new(),
            is_promotable: AtomicBool::new(false),
            promoted: SetOnce::new(),
        })))
    }

    /// Creates a link without an observer, which only counts usage, for work that no call waits for.
    pub fn unwatched(call_id: CallId) -> Self {
        Self::new(call_id, Arc::new(NullObserver))
    }

    /// Forwards all further reports to `other`. Called when the call has its answer but its work continues with the
    /// link `other`. Usage that was counted before stays with the call.
    pub fn hand_over_to(&self, other: &Self) {
        if let Some(inner) = &self.0 {
            inner.metered.lock().handed_over = Some(other.clone());
        }
    }

    /// Sends a piece of output to the observer, and a heartbeat. A piece may begin and end inside a character.
    pub fn output(&self, output: impl AsRef<[u8]>) {
        let Some(inner) = &self.0 else { return };
        if let Some(other) = inner.handed_over() {
            return other.output(output);
        }
        inner.observer.heartbeat();
        inner.observer.output(&inner.call_id, output.as_ref());
    }

    /// Sends progress to the observer, and a heartbeat.
    pub fn progress(&self, progress: &CallProgress) {
        let Some(inner) = &self.0 else { return };
        if let Some(other) = inner.handed_over() {
            return other.progress(progress);
        }
        inner.observer.heartbeat();
        inner.observer.progress(&inner.call_id, progress);
    }

    /// Sends a heartbeat, while the call waits for other work that makes progress.
    pub fn heartbeat(&self) {
        let Some(inner) = &self.0 else { return };
        if let Some(other) = inner.handed_over() {
            return other.heartbeat();
        }
        inner.observer.heartbeat();
    }

    /// Journal for the calls of a sub-agent that runs in the call. `None` if the work of the call runs in the background.
    pub fn journal(&self) -> Option<Arc<dyn CallJournal>> {
        let inner = self.0.as_ref()?;
        if let Some(other) = inner.handed_over() {
            return other.journal();
        }
        let journal = inner.observer.journal()?;
        Some(match inner.journal_copy.get() {
            Some(copy) => Arc::new(CopiedJournal {
                journal,
                copy: Arc::clone(copy),
            }),
            None => journal,
        })
    }

    /// Prompter for the questions of a tool's server. `None` if no person can be asked.
    pub fn prompter(&self) -> Option<Arc<dyn Prompter>> {
        self.0.as_ref()?.observer.prompter()
    }

    /// Host of the background work that the call may start. `None` if the call belongs to no session.
    pub fn background(&self) -> Option<Arc<dyn BackgroundHost>> {
        self.0.as_ref()?.observer.background()
    }

    /// Also reports the calls of a sub-agent to `copy`, until the handover to another link. A sub-agent that then moves to
    /// the background has all its calls there. Only the first copy is kept.
    pub fn copy_journal_to(&self, copy: Arc<dyn CallJournal>) {
        if let Some(inner) = &self.0 {
            // Setting the copy fails if a copy was set before. That copy is kept.
            drop(inner.journal_copy.set(copy));
        }
    }

    /// True if the work of the call continues with another link.
    pub fn is_handed_over(&self) -> bool {
        let inner = self.0.as_ref();
        inner.is_some_and(|inner| inner.handed_over().is_some())
    }

    /// Counts tokens that the call has used. The tokens count even if the call fails or is stopped.
    pub fn meter(&self, usage: Usage) {
        let Some(inner) = &self.0 else { return };
        let mut metered = inner.metered.lock();
        let Some(other) = metered.handed_over.clone() else {
            metered.usage += usage;
            return;
        };
        drop(metered);
        other.meter(usage);
    }

    /// Usage that this link has counted so far.
    pub fn metered(&self) -> Usage {
        self.0
            .as_ref()
            .map_or_else(Usage::default, |inner| inner.metered.lock().usage)
    }

    /// Records a denied call of a sub-agent that runs in the call.
    pub fn denied(&self, denial: Denial) {
        let Some(inner) = &self.0 else { return };
        let mut metered = inner.metered.lock();
        let Some(other) = metered.handed_over.clone() else {
            metered.denials.push(denial);
            return;
        };
        drop(metered);
        other.denied(denial);
    }

    /// Denied calls of the sub-agents that have run in the call.
    pub fn denials(&self) -> Vec<Denial> {
        let inner = self.0.as_ref();
        inner.map_or_else(Vec::new, |inner| inner.metered.lock().denials.clone())
    }

    /// Records the exit code of the command that the call ran. Only the first code is kept.
    pub fn exited(&self, code: i32) {
        if let Some(inner) = &self.0 {
            // Setting the code fails if a code was recorded before. That code is kept.
            let _ = inner.exit_code.set(code);
        }
    }

    /// Exit code of the command that the call ran.
    pub fn exit_code(&self) -> Option<i32> {
        self.0.as_ref()?.exit_code.get().copied()
    }

    /// Records the change of a file that the call has made, for display. Only the first change is kept.
    pub fn changed(&self, change: FileChange) {
        if let Some(inner) = &self.0 {
            // Setting the change fails if a change was recorded before. That change is kept.
            drop(inner.change.set(Arc::new(change)));
        }
    }

    #[cfg(feature = "shell")]
    /// Records the state of the file that the permission question about the call shows. Only the first state is kept.
    pub(crate) fn set_shown(&self, state: FileState) {
        if let Some(inner) = &self.0 {
            // Setting the state fails if a state was recorded before. That state is kept.
            let _stands = inner.shown.set(state);
        }
    }

    #[cfg(feature = "shell")]
    /// State of the file that a person saw when the call was permitted.
    pub(crate) fn shown(&self) -> Option<FileState> {
        self.0.as_ref()?.shown.get().copied()
    }

    /// The change of a file that the call has made.
    pub fn change(&self) -> Option<Arc<FileChange>> {
        self.0.as_ref()?.change.get().cloned()
    }

    /// Resolves when the call is asked to continue in the background. A call whose tool never awaits this future cannot
    /// be promoted.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn promotion(&self) {
        match &self.0 {
            None => std::future::pending().await,
            Some(inner) => {
                inner.is_promotable.store(true, Ordering::Release);
                inner.promoted.wait().await;
            }
        }
    }

    /// Asks the call to continue in the background. A second request has no effect.
    ///
    /// # Errors
    /// If the tool does not wait for a promotion.
    pub fn promote(&self) -> Result<(), NotPromotable> {
        match &self.0 {
            Some(inner) if inner.is_promotable.load(Ordering::Acquire) => {
                // Setting the value fails if an earlier request has set it.
                drop(inner.promoted.set(()));
                Ok(())
            }
            _ => Err(NotPromotable),
        }
    }
}

impl CallLinkInner {
    fn handed_over(&self) -> Option<CallLink> {
        self.metered.lock().handed_over.clone()
    }
}

impl CallMeter for CallLink {
    fn metered(&self) -> Usage {
        Self::metered(self)
    }

    fn denials(&self) -> Vec<Denial> {
        Self::denials(self)
    }
}

impl fmt::Debug for CallLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallLink")
            .field(&self.0.as_ref().map(|inner| &inner.call_id))
            .finish()
    }
}
