//! Intake of messages and commands from the handles of a session. Wakes a sleeping session by starting a new owner, the
//! task that runs the turns.

use std::sync::Arc;

use allstop_agent::{Prompt, SteeredMessage};
use allstop_core::Extent;
use allstop_core::record::TurnOrigin;
use allstop_log::SessionWriter;
use allstop_scope::{Deadline, NotStarted, ScopeOptions};

use crate::command::OwnerCommand;
use crate::inner::{AwakeSession, LockedState, SessionInner};
use crate::message::{MessageHandle, NewMessage, SendError};
use crate::orphan_search::OrphanSearch;
use crate::owner;
use crate::queue::MessageRefused;
use crate::queued_turn::QueuedTurn;

impl SessionInner {
    /// Starts the owner of a session with this open log.
    pub(crate) fn start_with(
        self: &Arc<Self>,
        writer: SessionWriter,
        left: OrphanSearch,
    ) -> Result<(), NotStarted> {
        let mut state = self.state.lock();
        state.orphans.opened(left);
        state.opened = Some(Box::new(writer));
        self.wake(&mut state).map(drop)
    }

    /// Returns the session's scopes. If the session sleeps, creates the scopes and starts the owner.
    fn wake(self: &Arc<Self>, state: &mut LockedState) -> Result<AwakeSession, NotStarted> {
        if let Some(awake) = &state.awake {
            return Ok(awake.clone());
        }
        let label = self.label();
        let scope = self.host.scope.child(&*label, ScopeOptions::default())?;
        let background_scope = self.background_scope(&scope)?;
        let awake = AwakeSession {
            scope: scope.clone(),
            background_scope,
            being_stopped: Vec::new(),
            by_message: Vec::new(),
            hooks: None,
            background: None,
            conversation: None,
        };
        state.awake = Some(awake.clone());
        // When the session is closed, the owner waits until the work of the scope has ended. Therefore the owner itself
        // must not count as part of that work. The owner ends when the session sleeps or is closed.
        drop(scope.spawn_engine(owner::run(Arc::clone(self), scope.clone())));
        Ok(awake)
    }

    /// Accepts a message. After this function has returned, a stop of the message's turn covers the message.
    pub(crate) fn send(self: &Arc<Self>, message: NewMessage) -> Result<MessageHandle, SendError> {
        if message.text.trim().is_empty() && message.images.is_empty() {
            return Err(SendError::Empty);
        }
        let mut state = self.state.lock();
        if state.queue.is_closed() {
            return Err(MessageRefused::Closed.into());
        }
        let policy = message.policy.unwrap_or(state.policy);
        let awake = self.wake(&mut state).map_err(refused)?;
        let new_id = &self.host.options.new_message_id;
        let id = message.id.unwrap_or_else(|| new_id());
        let label = if state.queue.is_idle() {
            format!("{}/turn/{}", self.label(), state.position.last_turn.0 + 1)
        } else {
            format!("{}/message/{id}", self.label())
        };
        let prompt = Prompt {
            text: message.text,
            images: message.images,
            message: Some(id.clone()),
            origin: TurnOrigin::User,
            trace: message.trace,
            headers: message.headers,
        };
        let deadline = message.deadline.map(|deadline| Deadline {
            at: deadline.at,
            stops: None,
            detail: deadline.detail.to_string().into(),
            extent: Extent::Turn,
            bystanders: vec![awake.background_scope.clone()],
        });
        let queued = QueuedTurn::open(&awake.scope, label, prompt, deadline).map_err(refused)?;
        if let Some(cause) = message.stopped {
            // The stop must be set before the owner can begin the turn.
            queued.controls.set_stopped_before();
            queued.stop(cause, &awake.background_scope);
        }
        let steered = || SteeredMessage {
            id: id.clone(),
            text: Arc::clone(&queued.prompt.text),
            images: queued.prompt.images.clone(),
        };
        let admitted = state.queue.admit(&queued, policy, |running| {
            running.controls.steer(steered()).is_ok()
        });
        drop(state);
        let admitted = admitted.inspect_err(|_| queued.scope.close())?;
        if let Some(keep) = policy.supersedes_with() {
            for older in &admitted.superseded {
                older.supersede(&id, keep, &awake.background_scope);
            }
        }
        self.changed.notify_one();
        Ok(MessageHandle {
            id,
            admission: admitted.admission,
            state: Arc::clone(&queued.state),
        })
    }

    /// Queues a command, which the owner carries out between two turns.
    pub(crate) fn command(self: &Arc<Self>, command: OwnerCommand) -> Result<(), MessageRefused> {
        self.command_if(command, |_| true).map(drop)
    }

    /// Queues a command if `may` permits it in the current state. Returns true if the command was queued.
    pub(crate) fn command_if(
        self: &Arc<Self>,
        command: OwnerCommand,
        may: impl FnOnce(&LockedState) -> bool,
    ) -> Result<bool, MessageRefused> {
        let mut state = self.state.lock();
        if state.queue.is_closed() || self.wake(&mut state).is_err() {
            return Err(MessageRefused::Closed);
        }
        if !may(&state) {
            return Ok(false);
        }
        state.commands.push(command);
        drop(state);
        self.changed.notify_one();
        Ok(true)
    }
}

fn refused(not: NotStarted) -> SendError {
    match not {
        NotStarted::Stopped(cause) => SendError::Stopped(cause),
        NotStarted::Closed => MessageRefused::Closed.into(),
    }
}
