//! State shared by the handles of a session and its owner.
//!
//! The lock is held for short sections without waiting, and never during a stop: so a stop is accepted even if the
//! owner, its store or its model hang.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_agent::{Background, Prompt, SteeredMessage};
use allstop_core::record::TurnOrigin;
use allstop_core::turn::Conversation;
use allstop_core::{Extent, SessionId, TurnNumber};
use allstop_log::{SessionStream, Version};
use allstop_scope::{Deadline, NotStarted, Scope, ScopeOptions};
use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce};

use crate::command::Command;
use crate::desk::{Desk, NotAdmitted};
use crate::driver;
use crate::events::Hub;
use crate::follow_up::FollowUp;
use crate::left::LeftWork;
use crate::message::{NewMessage, SendError, Sent};
use crate::questions::Questions;
use crate::sessions::Host;
use crate::slot::Slot;

pub(crate) struct Shared {
    pub(crate) host: Arc<Host>,
    pub(crate) id: SessionId,
    pub(crate) hub: Arc<Hub>,
    pub(crate) questions: Arc<Questions>,
    /// Wakes the owner after a change.
    pub(crate) changed: Notify,
    /// Set when the session has ended for good.
    pub(crate) ended: SetOnce<()>,
    pub(crate) inner: Mutex<Inner>,
}

/// Facts about the log that are known without opening it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) last_turn: TurnNumber,
    pub(crate) version: Version,
}

pub(crate) struct Inner {
    pub(crate) desk: Desk<Arc<Slot>>,
    pub(crate) policy: FollowUp,
    pub(crate) known: Known,
    /// Set while the owner runs.
    pub(crate) awake: Option<Awake>,
    /// Slot of the last ended turn, for late stops.
    pub(crate) last: Option<Arc<Slot>>,
    pub(crate) commands: VecDeque<Command>,
    /// Background work that runs without this process.
    pub(crate) left: Vec<LeftWork>,
    /// An open log that the owner has not taken yet.
    pub(crate) opened: Option<Box<SessionStream>>,
}

/// Scopes of a session that is awake.
#[derive(Debug, Clone)]
pub(crate) struct Awake {
    pub(crate) scope: Scope,
    /// Parent of all background work; replaced after each stop of all background work.
    pub(crate) background_scope: Scope,
    /// Former background scopes that still have work: a later stop joins their stops.
    pub(crate) being_stopped: Vec<Scope>,
    /// Scope of the session's hooks while they run: turns wait for them.
    pub(crate) hooks: Option<Scope>,
    /// Set once the log is open.
    pub(crate) background: Option<Arc<Background>>,
    /// The committed conversation.
    pub(crate) conversation: Option<Arc<Conversation>>,
}

impl Shared {
    pub(crate) fn new(host: Arc<Host>, id: SessionId, known: Known) -> Arc<Self> {
        let hub = Arc::new(Hub::default());
        let options = &host.options;
        Arc::new(Self {
            questions: Questions::new(id.clone(), Arc::clone(&hub), options),
            inner: Mutex::new(Inner {
                desk: Desk::new(options.waiting_max),
                policy: options.follow_up,
                known,
                awake: None,
                last: None,
                commands: VecDeque::new(),
                left: Vec::new(),
                opened: None,
            }),
            hub,
            changed: Notify::new(),
            ended: SetOnce::new(),
            host,
            id,
        })
    }

    pub(crate) fn label(&self) -> String {
        format!("session/{}", self.id)
    }

    /// Starts the owner of a session whose log is open.
    pub(crate) fn start_with(self: &Arc<Self>, stream: SessionStream) -> Result<(), NotStarted> {
        let mut inner = self.inner.lock();
        inner.opened = Some(Box::new(stream));
        self.wake(&mut inner).map(drop)
    }

    /// Returns the session's scopes. If the session sleeps, creates them and starts the owner.
    pub(crate) fn wake(self: &Arc<Self>, inner: &mut Inner) -> Result<Awake, NotStarted> {
        if let Some(awake) = &inner.awake {
            return Ok(awake.clone());
        }
        let label = self.label();
        let scope = self.host.scope.child(&*label, ScopeOptions::default())?;
        let background_scope = self.background_scope(&scope)?;
        let awake = Awake {
            scope: scope.clone(),
            background_scope,
            being_stopped: Vec::new(),
            hooks: None,
            background: None,
            conversation: None,
        };
        inner.awake = Some(awake.clone());
        // The owner is not work of the scope: it accounts for the work. It ends when the session sleeps or is closed.
        drop(scope.spawn_engine(driver::drive(Arc::clone(self), scope.clone())));
        Ok(awake)
    }

    pub(crate) fn background_scope(&self, scope: &Scope) -> Result<Scope, NotStarted> {
        scope.child(
            format!("{}/background", self.label()),
            ScopeOptions::default(),
        )
    }

    /// Accepts a message. On return a stop of its turn covers it.
    pub(crate) fn send(self: &Arc<Self>, message: NewMessage) -> Result<Sent, SendError> {
        if message.text.trim().is_empty() {
            return Err(SendError::Empty);
        }
        let mut inner = self.inner.lock();
        if inner.desk.is_closed() {
            return Err(NotAdmitted::Closed.into());
        }
        let policy = message.policy.unwrap_or(inner.policy);
        let awake = self.wake(&mut inner).map_err(refused)?;
        let id = (self.host.options.new_message_id)();
        let label = if inner.desk.is_idle() {
            format!("{}/turn/{}", self.label(), inner.known.last_turn.0 + 1)
        } else {
            format!("{}/message/{id}", self.label())
        };
        let prompt = Prompt {
            text: message.text,
            message: Some(id.clone()),
            origin: TurnOrigin::User,
            trace: message.trace,
        };
        let deadline = message.deadline.map(|deadline| Deadline {
            at: deadline.at,
            stops: None,
            detail: deadline.detail.to_string().into(),
            extent: Extent::Turn,
            bystanders: vec![awake.background_scope.clone()],
        });
        let slot = Slot::open(&awake.scope, label, prompt, deadline).map_err(refused)?;
        if let Some(cause) = message.stopped {
            // Before the owner can begin the turn.
            let _its_receipt_goes_to_the_outcome = slot.stop(cause, Some(&awake.background_scope));
        }
        let steered = || SteeredMessage {
            id: id.clone(),
            text: Arc::clone(&slot.prompt.text),
        };
        let admitted = inner.desk.admit(&slot, policy, |running| {
            running.controls.steer(steered()).is_ok()
        });
        drop(inner);
        let admitted = admitted.inspect_err(|_| slot.scope.close())?;
        if let Some(keep) = policy.supersedes_with() {
            for older in &admitted.superseded {
                older.supersede(&id, keep, Some(&awake.background_scope));
            }
        }
        self.changed.notify_one();
        Ok(Sent {
            id,
            admission: admitted.admission,
            state: Arc::clone(&slot.state),
        })
    }

    /// Queues a command for the owner, who carries it out between two turns.
    pub(crate) fn command(self: &Arc<Self>, command: Command) -> Result<(), NotAdmitted> {
        self.command_if(command, |_| true).map(drop)
    }

    /// Queues a command if `may` permits it in the current state. Returns true if it was queued.
    pub(crate) fn command_if(
        self: &Arc<Self>,
        command: Command,
        may: impl FnOnce(&Inner) -> bool,
    ) -> Result<bool, NotAdmitted> {
        let mut inner = self.inner.lock();
        if inner.desk.is_closed() || self.wake(&mut inner).is_err() {
            return Err(NotAdmitted::Closed);
        }
        if !may(&inner) {
            return Ok(false);
        }
        inner.commands.push_back(command);
        drop(inner);
        self.changed.notify_one();
        Ok(true)
    }
}

fn refused(not: NotStarted) -> SendError {
    match not {
        NotStarted::Stopped(cause) => SendError::Stopped(cause),
        NotStarted::Closed => NotAdmitted::Closed.into(),
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
