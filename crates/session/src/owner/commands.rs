//! Commands that the owner of a session (the task that runs its turns) carries out between two turns.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Prompt, SummaryError, TurnError};
use allstop_core::record::SessionRecord;
use allstop_core::{TurnNumber, Usage};
use allstop_scope::Scope;
use tokio::sync::oneshot;
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
        // The owner carries out the command even if the caller is gone.
        match command {
            OwnerCommand::Undo(reply) => drop(reply.send(match self.open_in_time(&scope).await {
                Ok(()) => self.undo().await,
                Err(error) => Err(UndoError::NotOpen(error)),
            })),
            OwnerCommand::Compact(reply) => {
                let compacted = self.compact_as_turn().await;
                // The caller may request the next compaction at once.
                self.inner.state.lock().commands.end_compaction();
                drop(reply.send(compacted));
            }
            OwnerCommand::Detach(target, reply) => {
                drop(reply.send(match self.open_in_time(&scope).await {
                    Ok(()) => self.detach(&target).await,
                    Err(error) => Err(BackgroundDetachError::NotOpen(error)),
                }));
            }
            OwnerCommand::Open(reply) => drop(reply.send(self.open_in_time(&scope).await)),
            OwnerCommand::Release(reply) => self.begin_release(reply),
        }
        self.publish();
    }

    /// Lets the session sleep at once, if it has no reason to stay awake.
    fn begin_release(&mut self, reply: oneshot::Sender<()>) {
        if self.may_sleep() {
            self.is_sleep_due = true;
            self.released.push(reply);
        }
    }

    /// Opens the session for a command. The open has a time limit, because a hanging store must not delay the messages
    /// after this command. A stop of such a message would otherwise wait for the command.
    async fn open_in_time(&mut self, scope: &Scope) -> Result<(), TurnError> {
        let no_answer = |_| not_open(&format!("no answer within {OPEN_MAX:?}"));
        timeout(OPEN_MAX, self.open(scope))
            .await
            .map_err(no_answer)?
    }

    /// Queue entry of a compaction. The compaction runs as a separate entry of the queue, like a turn. Stops therefore
    /// cover the compaction, and a message that arrives meanwhile is treated like a message during a turn. `None` if
    /// the session is closed.
    pub(super) fn open_compaction(&self) -> Option<Arc<QueuedTurn>> {
        let label = format!("{}/compaction", self.inner.label());
        let queued = QueuedTurn::open(&self.scope, label, Prompt::default(), None).ok()?;
        // The compaction accepts no steered messages: they wait for a turn.
        drop(queued.controls.undelivered());
        Some(queued)
    }

    /// Compacts as the running entry of the queue, from [`Self::open_compaction`].
    async fn compact_as_turn(&mut self) -> Result<CompactionResult, CompactError> {
        let queued = self.inner.state.lock().queue.running().cloned();
        let queued = queued.ok_or(CompactError::Closed(MessageRefused::Closed))?;
        let (compacted, usage) = match self.open_in_time(&queued.scope).await {
            Ok(()) => {
                let compaction = self.inner.host.options.compaction.unwrap_or_default();
                let kept = self.writer().map_or(0, |writer| {
                    let conversation = writer.state().conversation();
                    turns_kept_on_request(conversation, compaction.turns_kept)
                });
                self.compact(&queued.scope, kept, None).await
            }
            Err(error) => {
                let failed = match queued.scope.cause() {
                    Some(cause) => SummaryError::Stopped(cause).into(),
                    None => CompactError::NotOpen(error),
                };
                (Err(failed), Usage::default())
            }
        };
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
