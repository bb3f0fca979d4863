//! Owner of a session: it alone has the log open, and runs one job at a time.
//!
//! The owner exists while work runs or waits, and for a while after; then the session sleeps. Stops never wait for the
//! owner: they act on the scopes.

mod commands;
mod compact;
mod detach;
mod hooks;
mod idle;
mod open;
mod turn;

use std::sync::Arc;

use allstop_agent::Prompt;
use allstop_core::record::TurnOrigin;
use allstop_scope::Scope;

use crate::command::Command;
use crate::message::MessageOutcome;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::source::OnBackgroundEnd;
use open::{Open, Opening};

/// Maximum number of consecutive turns that ended background work may cause: a model that answers each end with new
/// work must not run forever. The model learns of later ends with the next message.
const WAKES_MAX: u32 = 8;

enum Job {
    Turn(Arc<Slot>),
    Command(Command),
    /// The owner waits for a change.
    Wait,
    /// The session sleeps: the log is already closed, and another owner may exist.
    Sleep,
    Leave,
}

pub(crate) struct SessionDriver {
    shared: Arc<Shared>,
    scope: Scope,
    open: Option<Open>,
    /// The log, while it is being opened.
    opening: Option<Opening>,
    /// Turns that background work caused since the last message.
    wakes: u32,
    /// True if the last turn was stopped.
    stopped: bool,
    /// True if `session_idle` was sent since the last activity.
    told_idle: bool,
    /// Set after the idle time has passed.
    sleepy: bool,
}

/// Runs the owner until the session sleeps or is closed.
pub(crate) async fn drive(shared: Arc<Shared>, scope: Scope) {
    let mut whole = Whole {
        shared: Arc::clone(&shared),
        left: false,
    };
    let mut driver = SessionDriver {
        shared,
        scope,
        open: None,
        opening: None,
        wakes: 0,
        stopped: false,
        told_idle: true,
        sleepy: false,
    };
    driver.open_resumed().await;
    loop {
        match driver.next_job() {
            Job::Turn(slot) => driver.turn(slot).await,
            Job::Command(command) => driver.carry_out(command).await,
            Job::Wait => driver.idle().await,
            Job::Sleep => break,
            Job::Leave => {
                driver.leave().await;
                break;
            }
        }
    }
    whole.left = true;
}

impl SessionDriver {
    fn next_job(&mut self) -> Job {
        let shared = Arc::clone(&self.shared);
        let mut inner = shared.inner.lock();
        // Requested before the waiting turn begins, so carried out first.
        if let Some(command) = inner.commands.pop_front() {
            self.sleepy = false;
            return Job::Command(command);
        }
        if let Some(slot) = inner.desk.next() {
            self.sleepy = false;
            return Job::Turn(slot);
        }
        if self.scope.is_stopped() {
            inner.desk.close();
        }
        if inner.desk.is_closed() {
            return Job::Leave;
        }
        if let Some(slot) = self.wake_up() {
            inner.desk.run(Arc::clone(&slot));
            return Job::Turn(slot);
        }
        if self.sleepy {
            // The log first: from then on a message starts another owner, which opens the log.
            self.open = None;
            inner.awake = None;
            inner.last = None;
            self.scope.close();
            return Job::Sleep;
        }
        Job::Wait
    }

    /// Slot of a turn for ended background work, if the policy is to wake the model.
    fn wake_up(&mut self) -> Option<Arc<Slot>> {
        let options = &self.shared.host.options;
        if options.on_background_end != OnBackgroundEnd::Wake || self.wakes >= WAKES_MAX {
            return None;
        }
        let state = self.open.as_ref()?.state()?;
        state.unreported_background().next()?;
        self.wakes += 1;
        let label = format!("{}/turn/{}", self.shared.label(), state.next_turn());
        let prompt = Prompt {
            origin: TurnOrigin::Background,
            ..Prompt::default()
        };
        Slot::open(&self.scope, label, prompt, None).ok()
    }
}

/// Guard for an owner that is gone without leaving, which is a bug of Allstop: nothing may wait for that owner forever.
struct Whole {
    shared: Arc<Shared>,
    left: bool,
}

impl Drop for Whole {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let mut inner = self.shared.inner.lock();
        inner.desk.close();
        inner.commands.clear();
        let stranded: Vec<_> = inner.desk.all().cloned().collect();
        inner.desk.clear();
        drop(inner);
        self.shared.hub.close();
        for slot in stranded {
            let error = turn::bug("the session's owner is gone");
            let message = slot.message().cloned();
            slot.state.resolve(MessageOutcome::failed(message, error));
        }
        // Already set if the session was closed while it slept.
        drop(self.shared.ended.set(()));
    }
}
