//! What becomes of a session's background work when its run has ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_agent::History;
use allstop_core::TurnNumber;
use allstop_core::ids::BackgroundId;
use allstop_core::process::ProcessIdentity;
use allstop_core::record::{Attachment, SessionRecord};
use allstop_log::SessionError;
use allstop_tools::BackgroundWork;
use tokio::time::timeout;

use super::session::OpenSession;
use crate::error::chain;

/// How long the last records may take to be written: a disk that takes longer is blocked, and must not delay the exit.
/// What is missing then the next start finds out by itself.
const RECORD_WRITE_MAX: Duration = Duration::from_secs(1);
/// How long a keeper may take to let go: it answers within a millisecond.
const DETACH_MAX: Duration = Duration::from_secs(1);

/// What was left running, and what was not.
#[derive(Debug, Default)]
#[must_use = "it names what runs on"]
pub struct Kept {
    /// Work that runs on without this process.
    pub kept: Vec<KeptWork>,
    /// Work that could not be let go: it still runs here, and ends with this process.
    pub not_kept: Vec<NotKept>,
}

/// Work that runs on without this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptWork {
    /// Its id.
    pub id: BackgroundId,
    /// The command.
    pub name: Arc<str>,
    /// Its keeper: SIGTERM to this one ends all of it.
    pub keeper: ProcessIdentity,
    /// The file that its output goes to.
    pub output: PathBuf,
}

/// Work that could not be let go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotKept {
    /// Its id.
    pub id: BackgroundId,
    /// The command.
    pub name: Arc<str>,
    /// Why, in one line.
    pub why: String,
}

impl OpenSession {
    /// Waits until no attached background work runs. What is detached is not waited for.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping it stops nothing.
    pub async fn wait_idle(&self) {
        let attached = |work: &Arc<BackgroundWork>| work.attachment() == Attachment::Attached;
        while let Some(work) = self.background.running().into_iter().find(attached) {
            work.ended().await;
        }
    }

    /// Writes what has become of background work since the last turn: after it was stopped, or has ended.
    ///
    /// # Errors
    /// The store failed, or did not answer within a second.
    ///
    /// # Cancel safety
    /// As an append: a dropped one may have happened.
    pub async fn record_background(&self, history: &mut History) -> Result<(), SessionError> {
        let records = self.background.take_records(last_turn(history));
        append(history, records).await
    }

    /// Lets all background work that runs outlive this process, its output going to files from now on.
    ///
    /// The log says first that it was let go, and then it is: so whatever runs on after `kill -9`, at whatever moment,
    /// is in the log, and the next start finds and names it. The other way round it would run on while the log takes it
    /// for work that ended with this process.
    ///
    /// # Errors
    /// The store failed: then nothing was let go.
    ///
    /// # Cancel safety
    /// Dropped halfway, some was let go and some not. The log names all of it.
    pub async fn keep_background(&self, history: &mut History) -> Result<Kept, SessionError> {
        let mut kept = Kept::default();
        let mut records = self.background.take_records(last_turn(history));
        let mut letting_go = Vec::new();
        for work in self.background.running() {
            let process = work.process().cloned();
            let keeper = process
                .as_ref()
                .and_then(|process| process.handle().keeper_identity().cloned());
            let (Some(process), Some(keeper)) = (process, keeper) else {
                let why = "only a process with a keeper can be let go".to_owned();
                kept.not_kept.push(not_kept(&work, why));
                continue;
            };
            records.push(SessionRecord::BackgroundDetached {
                id: work.id.clone(),
            });
            letting_go.push((keeper, process, work));
        }
        append(history, records).await?;
        for (keeper, process, work) in letting_go {
            let output = work
                .output_file
                .clone()
                .unwrap_or_else(|| self.spill_folder().join(format!("{}.txt", work.id)));
            match timeout(DETACH_MAX, process.detach(&output)).await {
                Ok(Ok(())) => kept.kept.push(KeptWork {
                    id: work.id.clone(),
                    name: Arc::clone(&work.name),
                    keeper,
                    output,
                }),
                // It ended by itself meanwhile: its end is recorded below.
                Ok(Err(_)) if !work.is_running() => {}
                Ok(Err(error)) => kept.not_kept.push(not_kept(&work, chain(&error))),
                Err(_elapsed) => kept
                    .not_kept
                    .push(not_kept(&work, "its keeper does not answer".to_owned())),
            }
        }
        // What has been let go is told whatever the store says now; an end that is missing the next start finds out.
        if let Err(error) = self.record_background(history).await {
            tracing::warn!(%error, "the end of background work was not recorded");
        }
        Ok(kept)
    }
}

fn not_kept(work: &BackgroundWork, why: String) -> NotKept {
    NotKept {
        id: work.id.clone(),
        name: Arc::clone(&work.name),
        why,
    }
}

/// The turn that new records are of.
fn last_turn(history: &History) -> TurnNumber {
    TurnNumber(history.next_turn().0.saturating_sub(1))
}

async fn append(history: &mut History, records: Vec<SessionRecord>) -> Result<(), SessionError> {
    let History::Logged(stream) = history else {
        return Ok(());
    };
    if records.is_empty() {
        return Ok(());
    }
    match timeout(RECORD_WRITE_MAX, stream.append(records)).await {
        Ok(appended) => appended,
        Err(_elapsed) => Err(SessionError::Indeterminate),
    }
}
