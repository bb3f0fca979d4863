//! State shared by the handles and the owner of a session. The owner is the task that runs the session's turns.
//!
//! The lock of this state is held only for short sections that do not wait, and never while a stop waits for work to
//! end. A session therefore accepts a stop even if the owner, its store or its model hangs.

use std::sync::Arc;

use allstop_agent::SessionBackground;
use allstop_core::turn::Conversation;
use allstop_core::{MessageId, SessionId, TurnNumber};
use allstop_log::{SessionError, SessionWriter, Version};
use allstop_scope::{NotStarted, Scope, ScopeOptions};
use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce};

use crate::command::CommandQueue;
use crate::events::EventHub;
use crate::follow_up::FollowUp;
use crate::orphans::OrphanList;
use crate::parts::SessionParts;
use crate::questions::Questions;
use crate::queue::MessageQueue;
use crate::queued_turn::QueuedTurn;
use crate::source::SessionHost;
use crate::stop_list::StopList;

/// The parts of a session that its handles and its owner share.
pub(crate) struct SessionInner {
    pub(crate) host: Arc<SessionHost>,
    leave: LeaveRegistry,
    pub(crate) parts: SessionParts,
    pub(crate) id: SessionId,
    pub(crate) hub: Arc<EventHub>,
    pub(crate) questions: Arc<Questions>,
    /// Wakes the owner after a change.
    pub(crate) changed: Notify,
    /// Wakes the waiting owner after the receipt of a stop is complete.
    pub(crate) completed: Notify,
    /// Set when the session ends permanently.
    pub(crate) ended: SetOnce<()>,
    pub(crate) state: Mutex<LockedState>,
}

/// Removes a session from its registry.
pub(crate) type LeaveRegistry = Box<dyn Fn(&SessionInner) + Send + Sync>;

/// End of the log, known without opening the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogPosition {
    pub(crate) last_turn: TurnNumber,
    pub(crate) version: Version,
}

/// State protected by the lock of the session.
pub(crate) struct LockedState {
    pub(crate) queue: MessageQueue<Arc<QueuedTurn>>,
    pub(crate) policy: FollowUp,
    pub(crate) position: LogPosition,
    /// Set while the owner runs.
    pub(crate) awake: Option<AwakeSession>,
    /// The turn that ended last, for stops that arrive after its end.
    pub(crate) last: Option<Arc<QueuedTurn>>,
    pub(crate) commands: CommandQueue,
    pub(crate) orphans: OrphanList,
    /// Stops without an answer, and stops with receipts that are not in the log yet.
    pub(crate) stops: StopList,
    /// True if the last write of a receipt has failed. Receipts that belong to the ending of a turn do not count.
    pub(crate) has_unstored_receipt: bool,
    /// An open log that the owner has not taken yet.
    pub(crate) opened: Option<Box<SessionWriter>>,
}

/// Scopes and work of a session that is awake.
#[derive(Debug, Clone)]
pub(crate) struct AwakeSession {
    pub(crate) scope: Scope,
    /// Parent of all background work; replaced after each stop of all background work.
    pub(crate) background_scope: Scope,
    /// Former background scopes that still contain work. A later stop joins the stops of these scopes.
    pub(crate) being_stopped: Vec<Scope>,
    /// Scope of the background work of each message; each is a child of a background scope.
    pub(crate) by_message: Vec<(MessageId, Scope)>,
    /// Scope of the session's hooks while the hooks run. Turns wait for these hooks.
    pub(crate) hooks: Option<Scope>,
    /// Background work of the session; set once the log is open.
    pub(crate) background: Option<Arc<SessionBackground>>,
    /// The committed conversation.
    pub(crate) conversation: Option<Arc<Conversation>>,
}

impl SessionInner {
    pub(crate) fn new(
        host: Arc<SessionHost>,
        leave: LeaveRegistry,
        id: SessionId,
        position: LogPosition,
    ) -> Arc<Self> {
        let hub = Arc::new(EventHub::default());
        let options = &host.options;
        Arc::new(Self {
            questions: Questions::new(id.clone(), Arc::clone(&hub), options),
            state: Mutex::new(LockedState {
                queue: MessageQueue::new(options.waiting_max),
                policy: options.follow_up,
                position,
                awake: None,
                last: None,
                commands: CommandQueue::default(),
                orphans: OrphanList::default(),
                stops: StopList::default(),
                has_unstored_receipt: false,
                opened: None,
            }),
            hub,
            changed: Notify::new(),
            completed: Notify::new(),
            ended: SetOnce::new(),
            host,
            leave,
            parts: SessionParts::default(),
            id,
        })
    }

    /// Opens the log and recovers it.
    pub(crate) async fn resume_log(&self) -> Result<Box<SessionWriter>, SessionError> {
        let log = Arc::clone(&self.host.log);
        let at = (self.host.options.now)();
        let writer = SessionWriter::resume(log, self.id.clone(), at).await?;
        // The writer is boxed, so that futures that hold the writer are small.
        Ok(Box::new(writer))
    }

    /// Marks the session as permanently ended. Further calls change nothing.
    pub(crate) fn end(&self) {
        (self.leave)(self);
        self.parts.end();
        drop(self.ended.set(()));
    }

    pub(crate) fn label(&self) -> String {
        format!("session/{}", self.id)
    }

    pub(crate) fn background_scope(&self, scope: &Scope) -> Result<Scope, NotStarted> {
        scope.child(
            format!("{}/background", self.label()),
            ScopeOptions::default(),
        )
    }
}

impl Drop for SessionInner {
    fn drop(&mut self) {
        (self.leave)(self);
    }
}

impl AwakeSession {
    /// Creates a scope for the background work of a turn that a message caused. Must be called before the turn can
    /// start background work.
    pub(crate) fn begin_background_of(&mut self, message: Option<&MessageId>) {
        let Some(background) = &self.background else {
            return;
        };
        let above = &self.background_scope;
        let own = message.and_then(|message| {
            let label = format!("{}/{message}", above.label());
            // Creating the scope fails only if all background work is being stopped.
            let own = above.child(label, ScopeOptions::default()).ok()?;
            Some((message.clone(), own))
        });
        let scope = own.as_ref().map_or(above, |(_, own)| own);
        background.start_in(scope.clone());
        self.by_message.retain(|(_, scope)| !scope.is_quiet());
        self.by_message.extend(own);
    }

    /// Scope of the background work that the turn of a message has started.
    pub(crate) fn background_of(&self, message: &MessageId) -> Option<&Scope> {
        let mut scopes = self.by_message.iter();
        scopes.find_map(|(own, scope)| (own == message).then_some(scope))
    }
}

impl std::fmt::Debug for SessionInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
