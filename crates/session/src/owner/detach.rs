//! Detach of background work. Detached work outlives the session and this process. Each command has a keeper: a small
//! process that kills the command's processes if this process exits, unless they were detached.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::record::SessionRecord;
use allstop_tools::BackgroundWork;
use futures::future::join_all;
use tokio::time::timeout;

use super::SessionOwner;
use crate::command::{BackgroundDetachError, DetachResult, DetachTarget};
use crate::orphan_scan::OrphanedWork;

/// Maximum wait for a keeper to detach its processes. A keeper answers within a millisecond.
const KEEPER_ANSWER_MAX: Duration = Duration::from_secs(1);

impl SessionOwner {
    /// Carries out the waiting requests to detach work, before other commands.
    pub(super) async fn detach_waiting(&mut self) {
        loop {
            let waiting = self.inner.state.lock().commands.take_detach();
            let Some((target, reply)) = waiting else {
                return;
            };
            let detached = self.detach(&target).await;
            // The caller may be gone.
            drop(reply.send(detached));
        }
    }

    /// Detaches work after recording the detach. If a `kill -9` follows at any point, the log therefore contains all
    /// work that survives, and the next start finds this work. One append covers all the work, so the owner waits for a
    /// slow disk only once.
    pub(super) async fn detach(
        &mut self,
        target: &DetachTarget,
    ) -> Result<Vec<DetachResult>, BackgroundDetachError> {
        self.record_background().await;
        let mut running = self.inner.running_background();
        if let DetachTarget::One(id) = target {
            running.retain(|work| work.id == *id);
            if running.is_empty() {
                return Err(BackgroundDetachError::NotRunning);
            }
        }
        let mut answers = Vec::with_capacity(running.len());
        let mut records = Vec::new();
        let mut able = Vec::new();
        for work in running {
            match output_file(&work) {
                Ok(output) => {
                    let id = work.id.clone();
                    records.push(SessionRecord::BackgroundDetached { id });
                    able.push((work, output));
                }
                Err(refused) => answers.push(answer(&work, Some(refused))),
            }
        }
        if !records.is_empty() {
            self.append(records).await?;
        }
        let asked = able.into_iter().map(|(work, output)| detach(work, output));
        for detached in join_all(asked).await.into_iter().flatten() {
            if detached.refused.is_none() {
                let work = detached.work.clone();
                self.inner.state.lock().orphans.add([work]);
            }
            answers.push(detached);
        }
        Ok(answers)
    }
}

/// Returns a refusal if a stop covers the work. Otherwise the receipt of that stop would have to report that the
/// stopped work continues.
fn being_stopped(work: &BackgroundWork) -> Option<BackgroundDetachError> {
    let why = || BackgroundDetachError::NotPossible("it is being stopped".to_owned());
    work.scope().is_stopped().then(why)
}

/// File for the output of the detached work.
fn output_file(work: &BackgroundWork) -> Result<PathBuf, BackgroundDetachError> {
    if let Some(refused) = being_stopped(work) {
        return Err(refused);
    }
    let impossible = |why: &str| BackgroundDetachError::NotPossible(why.to_owned());
    let process = work
        .process()
        .ok_or_else(|| impossible("a sub-agent runs in this process"))?;
    if process.handle().keeper_identity().is_none() {
        return Err(impossible("only a process with a keeper can be detached"));
    }
    let output = work.output_file.clone();
    output.ok_or_else(|| impossible("it has no output file"))
}

/// Detaches one piece of work. `None` if the work has ended by itself meanwhile; its end is recorded as usual.
async fn detach(work: Arc<BackgroundWork>, output: PathBuf) -> Option<DetachResult> {
    let process = work.process()?;
    // A stop may have arrived while the record was written.
    if let Some(refused) = being_stopped(&work) {
        return Some(answer(&work, Some(refused)));
    }
    let refused = match timeout(KEEPER_ANSWER_MAX, process.detach(&output)).await {
        Ok(Ok(())) => {
            // Waits until this process no longer reads the output. The receipt of a later stop must not count the work
            // as part of the stop.
            let _it_runs_on = work.ended().await;
            None
        }
        Ok(Err(_)) if !work.is_running() => return None,
        Ok(Err(error)) => Some(BackgroundDetachError::NotPossible(error.to_string())),
        Err(_) => {
            let why = "its keeper does not answer".to_owned();
            Some(BackgroundDetachError::NotPossible(why))
        }
    };
    Some(answer(&work, refused))
}

fn answer(work: &BackgroundWork, refused: Option<BackgroundDetachError>) -> DetachResult {
    DetachResult {
        work: OrphanedWork::running(work, refused.is_none()),
        refused,
    }
}
