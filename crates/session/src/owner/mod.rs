//! Owner of a session: the only task that has the log open. The owner runs one job at a time.
//!
//! The owner exists while work runs or waits, and for a short time afterwards; then the session sleeps. Stops act on
//! the scopes and never wait for the owner.

mod commands;
mod compact;
mod detach;
mod hooks;
mod idle;
mod open;
mod turn;

use std::sync::Arc;

use allstop_agent::{Prompt, TurnError};
use allstop_core::record::TurnOrigin;
use allstop_scope::Scope;
use tokio::sync::oneshot;

use crate::command::OwnerCommand;
use crate::inner::SessionInner;
use crate::message::MessageOutcome;
use crate::queued_turn::QueuedTurn;
use crate::source::OnBackgroundEnd;
use open::{OwnerResources, PendingOpen};

/// Maximum number of consecutive turns that the ends of background work may cause. Without a limit, a model that
/// answers each end with new work would run forever. The model is informed about later ends with the next message.
const WAKES_MAX: u32 = 8;

enum OwnerJob {
    Turn(Arc<QueuedTurn>),
    Command(OwnerCommand),
    /// The owner waits for a change.
    Wait,
    /// The session sleeps: the log is already closed, and another owner may exist.
    Sleep,
    /// The session is closed: the owner records the results and ends.
    Close,
}

pub(crate) struct SessionOwner {
    inner: Arc<SessionInner>,
    scope: Scope,
    resources: Option<OwnerResources>,
    /// The log, while it is being opened.
    pending_open: Option<PendingOpen>,
    /// Number of turns that background work caused since the last message.
    wakes: u32,
    /// True if the last turn was stopped.
    stopped: bool,
    /// True if `session_idle` was sent since the last activity.
    idle_sent: bool,
    /// Set after the idle time has passed.
    is_sleep_due: bool,
    /// Callers that wait for the sleep of the session.
    released: Vec<oneshot::Sender<()>>,
}

/// Runs the owner until the session sleeps or is closed.
pub(crate) async fn run(inner: Arc<SessionInner>, scope: Scope) {
    let mut guard = OwnerLostGuard {
        inner: Arc::clone(&inner),
        has_finished: false,
    };
    let mut owner = SessionOwner {
        inner,
        scope,
        resources: None,
        pending_open: None,
        wakes: 0,
        stopped: false,
        idle_sent: true,
        is_sleep_due: false,
        released: Vec::new(),
    };
    owner.open_at_start().await;
    loop {
        match owner.next_job() {
            OwnerJob::Turn(queued) => owner.run_turn(queued).await,
            OwnerJob::Command(command) => owner.run_command(command).await,
            OwnerJob::Wait => owner.wait_for_change().await,
            OwnerJob::Sleep => {
                for released in owner.released.drain(..) {
                    // The caller may be gone.
                    let _received_or_gone = released.send(());
                }
                break;
            }
            OwnerJob::Close => {
                owner.finish_closed().await;
                break;
            }
        }
    }
    guard.has_finished = true;
}

impl SessionOwner {
    fn next_job(&mut self) -> OwnerJob {
        let inner = Arc::clone(&self.inner);
        let mut state = inner.state.lock();
        // Carries out commands before the next waiting turn, because the commands were requested before that turn
        // begins.
        if let Some(command) = state.commands.next() {
            self.stay_awake();
            if command.calls_model() {
                // The command leaves the commands and enters the queue in one step, so each stop finds it.
                self.open_model_command(&command)
                    .into_iter()
                    .for_each(|queued| state.queue.run(queued));
            }
            return OwnerJob::Command(command);
        }
        if let Some(queued) = state.queue.next() {
            self.stay_awake();
            return OwnerJob::Turn(queued);
        }
        if self.scope.is_stopped() {
            state.queue.close();
        }
        if state.queue.is_closed() {
            return OwnerJob::Close;
        }
        if let Some(queued) = self.wake_up() {
            state.queue.run(Arc::clone(&queued));
            return OwnerJob::Turn(queued);
        }
        // The session must not sleep before the log contains the receipts of all stops.
        if !state.stops.is_settled() {
            self.stay_awake();
        }
        if self.is_sleep_due {
            // Closes the log first: from then on a message starts another owner, which opens the log.
            self.resources = None;
            state.awake = None;
            state.last = None;
            state.orphans.forget_stops();
            self.scope.close();
            return OwnerJob::Sleep;
        }
        OwnerJob::Wait
    }

    fn stay_awake(&mut self) {
        self.is_sleep_due = false;
        self.released.clear();
    }

    /// Returns a turn for ended background work, if the policy is to wake the model.
    fn wake_up(&mut self) -> Option<Arc<QueuedTurn>> {
        let options = &self.inner.host.options;
        if options.on_background_end != OnBackgroundEnd::Wake || self.wakes >= WAKES_MAX {
            return None;
        }
        let state = self.resources.as_ref()?.state()?;
        state.unreported_background().next()?;
        self.wakes += 1;
        let label = format!("{}/turn/{}", self.inner.label(), state.next_turn());
        let prompt = Prompt {
            origin: TurnOrigin::Background,
            ..Prompt::default()
        };
        QueuedTurn::open(&self.scope, label, prompt, None).ok()
    }
}

/// Guard for an owner that ends without finishing, which is a bug of Allstop. Prevents callers from waiting for the
/// owner forever.
struct OwnerLostGuard {
    inner: Arc<SessionInner>,
    has_finished: bool,
}

impl Drop for OwnerLostGuard {
    fn drop(&mut self) {
        if self.has_finished {
            return;
        }
        let mut state = self.inner.state.lock();
        state.queue.close();
        state.commands.clear();
        let stranded: Vec<_> = state.queue.all().cloned().collect();
        state.queue.clear();
        drop(state);
        self.inner.hub.close();
        for queued in stranded {
            let error = TurnError::bug("the session's owner was lost");
            let message = queued.message().cloned();
            queued.state.resolve(MessageOutcome::failed(message, error));
        }
        self.inner.end();
    }
}
