//! Time between two turns: background work that ends, `session_idle`, sleep, and the end of the session.

use allstop_agent::HookEvent;
use allstop_core::TurnNumber;
use allstop_core::record::SessionRecord;
use allstop_log::SessionError;
use tokio::time::{Duration, timeout};

use super::SessionDriver;
use crate::events::SessionEventKind;
use crate::shared::Shared;
use crate::wait::is_attached;

/// Maximum wait for the last records to be written: the next start determines missing records.
const RECORD_WRITE_MAX: Duration = Duration::from_secs(1);
/// Maximum wait for a check of earlier processes' work: reading all of `/proc` takes milliseconds.
const LOOK_MAX: Duration = Duration::from_secs(1);

impl Shared {
    /// Sends the event with the running background work.
    pub(crate) fn tell_background(&self) {
        let running = self.background_items();
        self.hub
            .send(|| SessionEventKind::BackgroundChanged { running });
    }
}

impl SessionDriver {
    /// Waits for a change. Becomes sleepy if there is no reason to stay awake.
    pub(super) async fn idle(&mut self) {
        let running = self.shared.running_background();
        if !self.told_idle && !running.iter().any(is_attached) {
            self.told_idle = true;
            self.look_for_left().await;
            let (stopped, detached) = (self.stopped, self.shared.background_items());
            self.shared
                .hub
                .send(|| SessionEventKind::SessionIdle { stopped, detached });
        }
        if self.record_background().await {
            // The next job may be a turn that tells the model.
            return;
        }
        // An unconfirmed append may still be written, and would then conflict with the next owner's records.
        let is_settled = self.stream().is_none_or(|stream| stream.is_settled());
        let may_sleep = running.is_empty() && self.opening.is_none() && is_settled;
        let sleep_after = self.shared.host.options.sleep_after;
        let sleepy = some(sleep_after.filter(|_| may_sleep).map(tokio::time::sleep));
        // The pending open holds the session lock; do not sleep before it finishes.
        let opened = some(self.opening.as_mut());
        let background = some(self.open.as_mut().map(|open| open.changes.changed()));
        let has_changed = tokio::select! {
            biased;
            () = self.scope.stopped() => false,
            () = self.shared.changed.notified() => false,
            _ = background => true,
            _ = opened => {
                self.opening = None;
                false
            }
            () = sleepy => {
                self.sleepy = true;
                false
            }
        };
        if has_changed {
            self.told_idle = false;
            self.shared.tell_background();
        }
    }

    /// Appends records between two turns. Without a stop there is no time limit.
    pub(super) async fn append(&mut self, records: Vec<SessionRecord>) -> Result<(), SessionError> {
        let scope = self.scope.clone();
        let stream = self.stream().ok_or(SessionError::Indeterminate)?;
        let patience = async {
            scope.stopped().await;
            tokio::time::sleep(RECORD_WRITE_MAX).await;
        };
        tokio::select! {
            biased;
            appended = stream.append(records) => appended,
            () = patience => Err(SessionError::Indeterminate),
        }
    }

    /// Records changes of background work since the last call, even of earlier processes. Returns true if written.
    pub(super) async fn record_background(&mut self) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let Some(stream) = &mut open.stream else {
            return false;
        };
        let turn = TurnNumber(stream.state().next_turn().0.saturating_sub(1));
        let mut records = open.background.take_records(turn);
        let left = self.shared.take_left_ends();
        let has_left_ended = !left.is_empty();
        records.extend(left);
        if records.is_empty() {
            return false;
        }
        // A store that hangs must delay neither the next message nor the end of the session.
        let is_recorded = match timeout(RECORD_WRITE_MAX, stream.append(records)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the end of background work is not recorded yet");
                false
            }
            Err(_) => {
                tracing::warn!("the store has not answered: background work may not be recorded");
                false
            }
        };
        open.background.give_back(stream.take_unwritten());
        if has_left_ended {
            self.shared.tell_background();
        }
        self.publish();
        is_recorded
    }

    /// Checks the work that runs without this process, so that the next event about it is true. A `/proc` that hangs
    /// must not delay the next message.
    pub(super) async fn look_for_left(&self) {
        let looking = self.shared.look_for_left(&self.scope);
        let _as_it_was_known_before = timeout(LOOK_MAX, looking).await;
    }

    /// Ends the owner of a closed session: waits for the stop of all work, and records the results.
    pub(super) async fn leave(mut self) {
        // The closing caller stops the session in its next step; running work must end before the lock is released.
        self.scope.stopped().await;
        // The stop first: records written after it are final.
        if let Some(account) = self
            .scope
            .account(allstop_core::Extent::Session, Vec::new())
        {
            let _it_is_the_stops = account.receipt().await;
        }
        self.record_background().await;
        let above = self.shared.host.scope.clone();
        self.tell(&HookEvent::SessionEnd, &above).await;
        self.open = None;
        let mut inner = self.shared.inner.lock();
        inner.awake = None;
        inner.commands.clear();
        drop(inner);
        self.shared.hub.close();
        // Already set if the session was closed twice.
        drop(self.shared.ended.set(()));
    }
}

/// Waits for the future; forever without one.
async fn some<F: IntoFuture>(wait: Option<F>) -> F::Output {
    match wait {
        Some(wait) => wait.await,
        None => std::future::pending().await,
    }
}
