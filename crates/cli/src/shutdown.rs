//! Shutdown of a session, for `run` and `chat`: detaches background work (leaves it running on purpose), closes the
//! session, saves the recording of the model's answers, and closes the store. No wait lasts longer than the time that
//! is left until the exit.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use allstop_core::{Cause, CauseKind, Receipt};
use allstop_log::Log;
use allstop_runtime::{OrphanedWork, System};
use allstop_session::{DetachResult, Session, SessionStop, StopTarget};

use crate::control::ControlEffect;
use crate::display::to_stop;
use crate::shell_command::SameFlags;
use crate::supervise::Supervisor;

/// Detaches all running background work, and returns lines for the user. The lines list the refused detachments with
/// their reasons, and the detached work. If a timeout ended the detaching, work that was already detached is listed
/// too. The last line contains the command that stops the detached work. `flags` are the flags that this command needs
/// to find the store.
pub(crate) async fn detach_background(
    session: &Session,
    flags: &SameFlags,
    supervisor: &mut Supervisor,
) -> Vec<String> {
    let is_running = || session.background().iter().any(|work| work.is_running());
    if !is_running() {
        return Vec::new();
    }
    let answer = supervisor
        .wait_to_exit(session.detach_background(), |_| {})
        .await;
    let not_kept = |why: &str| format!("background work does not continue: {why}");
    let mut said: Vec<String> = match answer {
        Some(Ok(answers)) => answers.iter().filter_map(describe_refused).collect(),
        Some(Err(error)) => vec![not_kept(&error.to_string())],
        None if is_running() => vec![not_kept("the detach took too long")],
        None => Vec::new(),
    };
    let detached = session.detached_work();
    said.extend(detached.iter().map(describe_running_work));
    said.extend(to_stop(detached.len(), &flags.stop(session.id())));
    said
}

fn describe_refused(answer: &DetachResult) -> Option<String> {
    let (id, name) = (&answer.work.id, &answer.work.name);
    let why = answer.refused.as_ref()?;
    Some(format!("{id} does not continue: {name} · {why}"))
}

fn describe_running_work(work: &OrphanedWork) -> String {
    let runs = Some(format!("{} keeps running: {}", work.id, work.name));
    let output = work.output.as_ref();
    let output = output.map(|output| format!("output: {output}"));
    let parts = [runs, output].into_iter().flatten();
    parts.collect::<Vec<_>>().join(" · ")
}

/// Writes the store back into one file, so that a copy of this file is complete. A failure loses nothing: the records
/// stay in the write-ahead log.
pub(crate) async fn write_back(log: &dyn Log) {
    if let Err(error) = log.write_back().await {
        tracing::warn!(%error, "the store is not written back into one file");
    }
}

/// Session, system and options of a shutdown.
pub(crate) struct SessionClosing<'a> {
    pub(crate) session: &'a Session,
    pub(crate) system: &'a System,
    /// True if the store has failed. The shutdown then does not wait for the store.
    pub(crate) store_failed: bool,
    /// True if the store is written back into one file. This takes some milliseconds, so a short run does not do it.
    pub(crate) writes_back: bool,
    /// True if the work that still runs is forced at once, without a time to end by itself.
    pub(crate) force: bool,
}

/// Result of a shutdown.
pub(crate) struct CloseResult {
    /// Path of a saved recording, or the reason why it was not saved.
    pub(crate) recording: Option<Result<PathBuf, String>>,
    /// Receipts of stops during the shutdown. A receipt reports the stopped work, such as a hook.
    pub(crate) receipts: Vec<Arc<Receipt>>,
}

impl SessionClosing<'_> {
    /// Closes the session, saves the recording and closes the store, as far as the time allows. First waits for `idle`,
    /// which resolves when the session's owner has finished its work after the last turn. Work that still runs shortly
    /// before the exit is stopped. A signal also stops the remaining work.
    pub(crate) async fn close(
        &self,
        supervisor: &mut Supervisor,
        idle: impl Future<Output = ()>,
    ) -> CloseResult {
        let ended = OnceCell::new();
        // Work that is stopped by the close gets the cause that ended the run.
        let run_cause = supervisor.control.cause().cloned();
        let close = async {
            if !self.store_failed {
                idle.await;
            }
            // An earlier stop of the whole session has already closed the session, and the receipt of that stop names
            // the remaining work.
            if !self.session.is_closed() {
                let cause = run_cause.unwrap_or_else(the_session_is_closed);
                let end = || self.session.stop(&StopTarget::Session, cause);
                let stopping = ended.get_or_init(end);
                if self.force {
                    stopping.force();
                }
            }
            if !self.store_failed {
                self.session.closed().await;
                if self.writes_back {
                    write_back(&**self.system.log()).await;
                }
                self.system.close().await;
            }
        };
        let mut recorded = None;
        let save = async { recorded = self.system.save_recording().await };
        let stopped = OnceCell::new();
        let stop = |cause| stopped.get_or_init(|| self.session.stop(&StopTarget::Process, cause));
        supervisor.control.end(Instant::now());
        let last_moments = supervisor.control.last_moments();
        let cause = supervisor.control.cause().cloned();
        let ladder = async {
            let Some((ask_at, force_at)) = last_moments else {
                return std::future::pending::<Infallible>().await;
            };
            tokio::time::sleep_until(ask_at.into()).await;
            let stop = stop(cause.unwrap_or_else(the_process_ends));
            tokio::time::sleep_until(force_at.into()).await;
            stop.force();
            std::future::pending().await
        };
        let close = async {
            let closed = tokio::join!(close, save);
            if let Some(stop) = stopped.get() {
                stop.receipt().await;
            }
            closed
        };
        let both = async {
            tokio::select! {
                closed = close => closed,
                never = ladder => match never {},
            }
        };
        let hurry = |effect| {
            if let ControlEffect::Stop(cause) | ControlEffect::Force(cause) = effect {
                stop(cause).force();
            }
        };
        let closed = supervisor.wait_to_exit(both, hurry).await;
        let stops = [ended.get(), stopped.get()];
        let mut receipts: Vec<_> = stops
            .into_iter()
            .flatten()
            .map(SessionStop::account_now)
            .collect();
        receipts.retain(|receipt| receipt.lists_work());
        let path = self.system.recording_path();
        let not_written = |why: &str| {
            path.map(|path| format!("the recording {} is not written{why}", path.display()))
        };
        CloseResult {
            receipts,
            recording: match (recorded, closed) {
                (Some(Ok(path)), _) => Some(Ok(path)),
                (Some(Err(why)), _) => not_written(&format!(": {why}")).map(Err),
                (None, None) => not_written("").map(Err),
                (None, Some(_)) => None,
            },
        }
    }
}

fn the_session_is_closed() -> Cause {
    Cause::new(CauseKind::Shutdown).detail("the session was closed")
}

fn the_process_ends() -> Cause {
    Cause::new(CauseKind::Shutdown)
        .detail("the process ends")
        .by("cli")
}
