//! Commands that the owner carries out between two turns.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::Prompt;
use allstop_core::TurnNumber;
use allstop_core::record::SessionRecord;
use tokio::time::timeout;

use super::SessionDriver;
use super::turn::bug;
use crate::command::{Command, DetachError, UndoError};
use crate::compaction::{CompactError, Compacted};
use crate::desk::NotAdmitted;
use crate::slot::Slot;

/// Maximum wait for a store to open a session for a command.
const OPEN_MAX: Duration = Duration::from_secs(10);

impl SessionDriver {
    pub(super) async fn carry_out(&mut self, command: Command) {
        let scope = self.scope.clone();
        // A store that hangs must not delay waiting messages, which a stop can end.
        let not_open = match timeout(OPEN_MAX, self.open(&scope)).await {
            Ok(opened) => opened.err(),
            Err(_) => Some(bug("the store has not answered")),
        };
        let not_open = not_open.map(|error| error.message);
        // The command is carried out even if the caller is gone.
        match command {
            Command::Undo(reply) => drop(reply.send(match not_open {
                None => self.undo().await,
                Some(why) => Err(UndoError::NotOpen(why)),
            })),
            Command::Compact(reply) => drop(reply.send(match not_open {
                None => self.compact_as_turn().await,
                Some(why) => Err(CompactError::NotOpen(why)),
            })),
            Command::Detach(what, reply) => drop(reply.send(match not_open {
                None => self.detach(&what).await,
                Some(why) => Err(DetachError::NotOpen(why)),
            })),
        }
        self.publish();
    }

    /// Compacts in a separate slot, like a turn: stops cover it, and new messages follow their policy meanwhile.
    async fn compact_as_turn(&mut self) -> Result<Compacted, CompactError> {
        let label = format!("{}/compaction", self.shared.label());
        let slot = Slot::open(&self.scope, label, Prompt::default(), None);
        let slot = slot.map_err(|_| CompactError::Closed(NotAdmitted::Closed))?;
        // Accepts no steered messages: they wait.
        drop(slot.controls.undelivered());
        self.shared.inner.lock().desk.run(Arc::clone(&slot));
        let compaction = self.shared.host.options.compaction.unwrap_or_default();
        let compacted = self.compact(&slot.scope, compaction.turns_kept).await;
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

    pub(super) fn stream(&mut self) -> Option<&mut allstop_log::SessionStream> {
        Some(&mut **self.open.as_mut()?.stream.as_mut()?)
    }
}
