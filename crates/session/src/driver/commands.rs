//! What the owner does between two turns beside waiting.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_agent::Prompt;
use allstop_core::TurnNumber;
use allstop_core::ids::BackgroundId;
use allstop_core::record::SessionRecord;
use tokio::time::timeout;

use super::Driver;
use super::turn::bug;
use crate::command::{Command, DetachError, UndoError};
use crate::compaction::{CompactError, Compacted};
use crate::desk::NotAdmitted;
use crate::found::FoundWork;
use crate::slot::Slot;

/// How long a keeper may take to let go: it answers within a millisecond.
const DETACH_MAX: Duration = Duration::from_secs(1);

/// How long a store may take to open a session for something that is no message.
const OPEN_MAX: Duration = Duration::from_secs(10);

impl Driver {
    pub(super) async fn carry_out(&mut self, command: Command) {
        let scope = self.scope.clone();
        // A store that hangs must not hold up the messages that wait, which stops can end.
        let opened = match timeout(OPEN_MAX, self.open(&scope)).await {
            Ok(opened) => opened,
            Err(_) => Err(bug("the store has not answered")),
        };
        // Whoever asked may be gone by now: what was asked is done all the same.
        match command {
            Command::Undo(reply) => {
                let answer = match opened {
                    Ok(()) => self.undo().await,
                    Err(error) => Err(UndoError::NotOpen(error.message)),
                };
                drop(reply.send(answer));
            }
            Command::Compact(reply) => {
                let answer = match opened {
                    Ok(()) => self.compact_as_turn().await,
                    Err(error) => Err(CompactError::NotOpen(error.message)),
                };
                drop(reply.send(answer));
            }
            Command::Detach(id, reply) => {
                let answer = match opened {
                    Ok(()) => self.detach(&id).await,
                    Err(error) => Err(DetachError::NotOpen(error.message)),
                };
                drop(reply.send(answer));
            }
        }
        self.publish();
    }

    /// Compacts in a place of its own on the desk, as if it were a turn: stops of the turn cover it, and messages that
    /// come meanwhile do what their policy says.
    async fn compact_as_turn(&mut self) -> Result<Compacted, CompactError> {
        let label = format!("{}/compaction", self.shared.label());
        let slot = Slot::open(&self.scope, label, Prompt::default());
        let slot = slot.map_err(|_| CompactError::Closed(NotAdmitted::Closed))?;
        // Nothing is handed to it: whoever wants to steer waits.
        drop(slot.controls.undelivered());
        self.shared.inner.lock().desk.run(Arc::clone(&slot));
        let turns_kept = self.turns_kept();
        let compacted = self.compact(&slot.scope, turns_kept).await;
        slot.scope.close();
        drop(self.shared.inner.lock().desk.end(|_| false));
        compacted
    }

    async fn undo(&mut self) -> Result<TurnNumber, UndoError> {
        let at = (self.shared.host.options.now)();
        let stream = self.stream().ok_or(UndoError::NothingToUndo)?;
        let last = stream.state().conversation().spans.last();
        let turn = last.ok_or(UndoError::NothingToUndo)?.turn;
        self.append(vec![SessionRecord::TurnUndone { turn, at }])
            .await?;
        Ok(turn)
    }

    /// The log says first that the work was let go, and then it is: so whatever runs on after `kill -9`, at whatever
    /// moment, is in the log, and the next start finds it.
    async fn detach(&mut self, id: &BackgroundId) -> Result<(), DetachError> {
        self.record_background().await;
        let running = self.shared.running_background();
        let work = running.into_iter().find(|work| work.id == *id);
        let work = work.ok_or(DetachError::NotRunning)?;
        let process = work.process().ok_or_else(|| {
            DetachError::NotPossible("a sub-agent runs in this process".to_owned())
        })?;
        if process.handle().keeper_identity().is_none() {
            let why = "only a process with a keeper can be let go".to_owned();
            return Err(DetachError::NotPossible(why));
        }
        let output: PathBuf = work.output_file.clone().ok_or_else(|| {
            DetachError::NotPossible("its output has no file to go to".to_owned())
        })?;
        let record = SessionRecord::BackgroundDetached { id: id.clone() };
        self.append(vec![record]).await?;
        match timeout(DETACH_MAX, process.detach(&output)).await {
            Ok(Ok(())) => {
                // Until nothing of ours reads its output any more: a stop that comes next has nothing of it to account for.
                let _it_runs_on = work.ended().await;
                self.remember_let_go(id);
                Ok(())
            }
            Ok(Err(error)) => Err(DetachError::NotPossible(error.to_string())),
            Err(_) => Err(DetachError::NotPossible(
                "its keeper does not answer".to_owned(),
            )),
        }
    }

    fn remember_let_go(&mut self, id: &BackgroundId) {
        let Some(stream) = self.stream() else { return };
        let mut works = stream.state().background().iter();
        let found = works.find(|work| work.id == *id).map(FoundWork::of);
        self.shared.remember_left(found);
    }

    pub(super) fn stream(&mut self) -> Option<&mut allstop_log::SessionStream> {
        Some(&mut **self.open.as_mut()?.stream.as_mut()?)
    }

    pub(super) fn turns_kept(&self) -> u32 {
        let compaction = self.shared.host.options.compaction.unwrap_or_default();
        compaction.turns_kept
    }
}
