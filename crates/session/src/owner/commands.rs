//! Commands that the owner of a session (the task that runs its turns) carries out between two turns.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::Prompt;
use allstop_core::TurnNumber;
use allstop_core::record::SessionRecord;
use tokio::time::timeout;

use super::SessionOwner;
use super::open::not_open;
use crate::command::{BackgroundDetachError, OwnerCommand, UndoError};
use crate::compaction::{CompactError, CompactionResult, turns_kept_on_request};
use crate::message::MessageOutcome;
use crate::queue::MessageRefused;
use crate::queued_turn::QueuedTurn;

/// Maximum wait for a store to open a session for a command.
const OPEN_MAX: Duration = Duration::from_secs(10);

impl SessionOwner {
    pub(super) async fn run_command(&mut self, command: OwnerCommand) {
        let scope = self.scope.clone();
        // The open has a time limit, because a hanging store must not delay the messages after this command. A stop of
        // such a message would otherwise wait for the command.
        let failed = match timeout(OPEN_MAX, self.open(&scope)).await {
            Ok(opened) => opened.err(),
            Err(_) => Some(not_open(&format!("no answer within {OPEN_MAX:?}"))),
        };
        // The owner carries out the command even if the caller is gone.
        match command {
            OwnerCommand::Undo(reply) => drop(reply.send(match failed {
                None => self.undo().await,
                Some(error) => Err(UndoError::NotOpen(error)),
            })),
            OwnerCommand::Compact(reply) => drop(reply.send(match failed {
                None => self.compact_as_turn().await,
                Some(error) => Err(CompactError::NotOpen(error)),
            })),
            OwnerCommand::Detach(target, reply) => drop(reply.send(match failed {
                None => self.detach(&target).await,
                Some(error) => Err(BackgroundDetachError::NotOpen(error)),
            })),
        }
        self.publish();
    }

    /// Compacts as a separate entry of the queue, like a turn. Stops therefore cover the compaction, and a message that
    /// arrives meanwhile is treated like a message during a turn.
    async fn compact_as_turn(&mut self) -> Result<CompactionResult, CompactError> {
        let label = format!("{}/compaction", self.inner.label());
        let queued = QueuedTurn::open(&self.scope, label, Prompt::default(), None);
        let queued = queued.map_err(|_| CompactError::Closed(MessageRefused::Closed))?;
        // The compaction accepts no steered messages: they wait for a turn.
        drop(queued.controls.undelivered());
        self.inner.state.lock().queue.run(Arc::clone(&queued));
        let compaction = self.inner.host.options.compaction.unwrap_or_default();
        let kept = self.writer().map_or(0, |writer| {
            let conversation = writer.state().conversation();
            turns_kept_on_request(conversation, compaction.turns_kept)
        });
        let (compacted, usage) = self.compact(&queued.scope, kept, None).await;
        let outcome = MessageOutcome::of_compaction(compacted.as_ref().err(), usage);
        queued.state.resolve(outcome);
        queued.scope.close();
        drop(self.inner.state.lock().queue.end(|_| false));
        compacted
    }

    async fn undo(&mut self) -> Result<TurnNumber, UndoError> {
        let at = (self.inner.host.options.now)();
        let writer = self.writer().ok_or(UndoError::NothingToUndo)?;
        let last = writer.state().conversation().spans.last();
        let turn = last.ok_or(UndoError::NothingToUndo)?.turn;
        self.append(vec![SessionRecord::TurnUndone { turn, at }])
            .await?;
        Ok(turn)
    }

    pub(super) fn writer(&mut self) -> Option<&mut allstop_log::SessionWriter> {
        Some(&mut **self.resources.as_mut()?.writer.as_mut()?)
    }
}
