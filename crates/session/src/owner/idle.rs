//! The time between two turns: ends of background work, `session_idle`, sleep, and the end of the session.

use allstop_agent::HookEvent;
use allstop_core::TurnNumber;
use allstop_core::record::SessionRecord;
use allstop_log::session::stream_of;
use allstop_log::{SessionError, SessionWriter};
use tokio::time::{Duration, sleep, timeout};

use super::SessionOwner;
use crate::events::SessionEventKind;
use crate::inner::SessionInner;
use crate::stop_list::{StopList, UnrecordedReceipts};
use crate::wait::is_attached;

/// Maximum wait for the store to write the last records. If records are missing, the next start of the session
/// determines the missing facts again.
const RECORD_WRITE_MAX: Duration = Duration::from_secs(1);
/// Maximum wait for work that has outlasted the stop of the session, and the interval of the checks. A later stop can
/// still end this work.
const LEFT_WORK_MAX: Duration = Duration::from_secs(1);
const LEFT_WORK_CHECK_EVERY: Duration = Duration::from_millis(20);
/// Maximum wait for a check of earlier processes' work. Reading all of `/proc` takes milliseconds.
const CHECK_MAX: Duration = Duration::from_secs(1);

impl SessionInner {
    /// Sends the event that lists the running background work.
    pub(crate) fn send_background_changed(&self) {
        let running = self.background_items();
        self.hub
            .send(|| SessionEventKind::BackgroundChanged { running });
    }
}

impl SessionInner {
    /// Takes the records of orphaned work that has ended, and the receipts that the log does not contain yet.
    fn take_unrecorded(&self) -> (Vec<SessionRecord>, UnrecordedReceipts) {
        let mut state = self.state.lock();
        (state.orphans.take_ends(), state.stops.take_unrecorded())
    }
}

impl SessionOwner {
    /// Waits for a change. If the session has no reason to stay awake, the wait ends after the idle time, and the
    /// session may then sleep.
    pub(super) async fn wait_for_change(&mut self) {
        let running = self.inner.running_background();
        if !self.idle_sent && !running.iter().any(is_attached) {
            self.idle_sent = true;
            self.check_orphans().await;
            let (stopped, detached) = (self.stopped, self.inner.background_items());
            self.inner
                .hub
                .send(|| SessionEventKind::SessionIdle { stopped, detached });
        }
        if self.record_background().await {
            // The next job may be a turn that informs the model.
            return;
        }
        let may_sleep = self.may_sleep();
        let sleep_after = self.inner.host.options.sleep_after;
        let is_sleep_due = some(sleep_after.filter(|_| may_sleep).map(tokio::time::sleep));
        // The pending open holds the session lock, so the session must not sleep before the open finishes.
        let opened = some(self.pending_open.as_mut());
        let background = some(self.resources.as_mut().map(|open| open.changes.changed()));
        let has_changed = tokio::select! {
            biased;
            () = self.scope.stopped() => false,
            () = self.inner.changed.notified() => false,
            _ = background => true,
            _ = opened => {
                self.pending_open = None;
                false
            }
            () = is_sleep_due => {
                self.is_sleep_due = true;
                false
            }
        };
        if has_changed {
            self.idle_sent = false;
            self.inner.send_background_changed();
        }
    }

    /// True if the session has no reason to stay awake: no background work runs, and no open or append is pending.
    pub(super) fn may_sleep(&mut self) -> bool {
        // The store may still write an unconfirmed append, which would then conflict with the next owner's records.
        let is_settled = self.writer().is_none_or(|writer| writer.is_settled());
        let is_idle = self.inner.running_background().is_empty();
        is_idle && self.pending_open.is_none() && is_settled
    }

    /// Appends records between two turns. Without a stop the append has no time limit.
    pub(super) async fn append(&mut self, records: Vec<SessionRecord>) -> Result<(), SessionError> {
        let scope = self.scope.clone();
        let writer = self.writer().ok_or(SessionError::Indeterminate)?;
        let patience = async {
            scope.stopped().await;
            tokio::time::sleep(RECORD_WRITE_MAX).await;
        };
        tokio::select! {
            biased;
            appended = writer.append(records) => appended,
            () = patience => Err(SessionError::Indeterminate),
        }
    }

    /// Records changes of background work since the last call, including work of earlier processes, and receipts of
    /// stops. Returns true if the records are written.
    pub(super) async fn record_background(&mut self) -> bool {
        let Some(open) = &mut self.resources else {
            return false;
        };
        let Some(writer) = &mut open.writer else {
            return false;
        };
        let turn = TurnNumber(writer.state().next_turn().0.saturating_sub(1));
        let mut records = open.background.take_records(turn);
        let (orphan_ends, receipts) = self.inner.take_unrecorded();
        let has_orphan_ended = !orphan_ends.is_empty();
        records.extend(orphan_ends.into_iter().chain(receipts.records()));
        if records.is_empty() {
            return false;
        }
        let has_receipt = has_receipt(&records);
        // The append has a time limit, because a hanging store must delay neither the next message nor the end of the
        // session.
        let is_recorded = match timeout(RECORD_WRITE_MAX, writer.append(records)).await {
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
        open.background.give_back(writer.take_refused_records());
        if has_receipt {
            self.inner.state.lock().has_unstored_receipt = !is_recorded;
        }
        drop(receipts);
        if has_orphan_ended {
            self.inner.send_background_changed();
        }
        self.publish();
        is_recorded
    }

    /// Checks the work that runs without this process, so that the next event about the work is correct. The check is
    /// limited in time, because a hanging `/proc` must not delay the next message.
    pub(super) async fn check_orphans(&self) {
        let checking = self.inner.check_orphans(&self.scope);
        let _as_it_was_known_before = timeout(CHECK_MAX, checking).await;
    }

    /// Ends the owner of a closed session: waits for the stop of all work, then records the results.
    pub(super) async fn finish_closed(mut self) {
        // The caller that closes the session stops the session's scope in its next step. Running work must end before
        // the lock of the session is released.
        self.scope.stopped().await;
        // Waits for the stop before writing: records written after the stop are final.
        if let Some(account) = self
            .scope
            .account(allstop_core::Extent::Session, Vec::new())
        {
            let _it_is_the_stops = account.receipt().await;
        }
        let opened = self.finish_pending_open().await;
        let orphans_end = async {
            while self.inner.state.lock().orphans.are_ending() {
                self.inner.changed.notified().await;
            }
        };
        // A stop may be complete before the final state of its work is known.
        let _ended_or_late = timeout(RECORD_WRITE_MAX, orphans_end).await;
        self.inner.stops_complete(StopList::first_running).await;
        if self.resources.is_some() {
            self.record_background().await;
        } else {
            self.record_without_agent(opened).await;
        }
        let above = self.inner.host.scope.clone();
        self.call_hooks(&HookEvent::SessionEnd, &above).await;
        let work_ends = async {
            while !self.scope.is_quiet() {
                sleep(LEFT_WORK_CHECK_EVERY).await;
            }
        };
        let _ended_or_left = timeout(LEFT_WORK_MAX, work_ends).await;
        // A stop may have ended the hooks or the work; then the receipt of this stop is written, too.
        self.inner.stops_complete(StopList::first_running).await;
        self.record_background().await;
        self.resources = None;
        // A store releases the lock of the session before it answers a later question. So another process, or another
        // store of this process, can resume a session that is closed.
        let log = &self.inner.host.log;
        let answer = log.lock_owner(&stream_of(&self.inner.id));
        let _released_or_late = timeout(RECORD_WRITE_MAX, answer).await;
        let mut state = self.inner.state.lock();
        state.awake = None;
        state.commands.clear();
        drop(state);
        self.inner.hub.close();
        // The end is already set if the session was closed twice.
        self.inner.end();
    }

    /// Waits for a pending open. The open holds the session lock and may append records, so the closed session cannot
    /// be resumed before the open ends. If the store hangs, the lock is released when the store answers.
    async fn finish_pending_open(&mut self) -> Option<Box<SessionWriter>> {
        let pending_open = self.pending_open.take()?;
        let opened = timeout(RECORD_WRITE_MAX, pending_open).await;
        opened.ok()?.ok()?.ok()
    }

    /// Records the ends of orphaned work, and the receipts. Used if a session was closed before its agent was open.
    /// `opened` is the log if it is open.
    async fn record_without_agent(&self, opened: Option<Box<SessionWriter>>) {
        let inner = &self.inner;
        let (mut records, receipts) = inner.take_unrecorded();
        records.extend(receipts.records());
        if records.is_empty() {
            return;
        }
        let has_receipt = has_receipt(&records);
        let recording = async {
            let mut writer = if let Some(opened) = opened {
                opened
            } else {
                inner.resume_log().await?
            };
            writer.append(records).await
        };
        let recorded = timeout(RECORD_WRITE_MAX, recording).await;
        if has_receipt {
            inner.state.lock().has_unstored_receipt = !matches!(recorded, Ok(Ok(())));
        }
        match recorded {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the end of background work is not recorded"),
            Err(_) => tracing::warn!(
                "the store has not answered: the end of background work may not be recorded"
            ),
        }
        drop(receipts);
    }
}

fn has_receipt(records: &[SessionRecord]) -> bool {
    let mut records = records.iter();
    records.any(|record| matches!(record, SessionRecord::Stopped { .. }))
}

/// Waits for the future; forever if it is `None`.
async fn some<F: IntoFuture>(wait: Option<F>) -> F::Output {
    match wait {
        Some(wait) => wait.await,
        None => std::future::pending().await,
    }
}
