//! Commands that the owner of a session (the task that runs its turns) carries out between two turns.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{PlainAnswerError, Prompt, SummaryError, TurnError, answer_plainly};
use allstop_core::record::SessionRecord;
use allstop_core::{StopReason, TurnNumber, Usage};
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
use crate::side_question::SideQuestionError;

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
                self.inner.state.lock().commands.end_model_call();
                drop(reply.send(compacted));
            }
            OwnerCommand::Ask(question, reply) => {
                let answer = self.ask_as_turn(&question).await;
                self.inner.state.lock().commands.end_model_call();
                drop(reply.send(answer));
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

    /// Queue entry of a command that calls the model. The command runs as a separate entry of the queue, like a turn.
    /// Stops therefore cover the command, and a message that arrives meanwhile is treated like a message during a turn.
    /// `None` if the session is closed.
    pub(super) fn open_model_command(&self, command: &OwnerCommand) -> Option<Arc<QueuedTurn>> {
        let name = match command {
            OwnerCommand::Ask(..) => "side_question",
            _ => "compaction",
        };
        let label = format!("{}/{name}", self.inner.label());
        let queued = QueuedTurn::open(&self.scope, label, Prompt::default(), None).ok()?;
        // The command accepts no steered messages: they wait for a turn.
        drop(queued.controls.undelivered());
        Some(queued)
    }

    /// Compacts as the running entry of the queue, from [`Self::open_model_command`].
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
        let error = compacted.as_ref().err();
        let reason = error.map_or(StopReason::Completed, CompactError::stop_reason);
        let is_known = !error.is_some_and(CompactError::is_unknown);
        let outcome = MessageOutcome::of_model_command(reason, is_known, usage);
        self.end_model_command(&queued, outcome);
        compacted
    }

    /// Asks the model a question as the running entry of the queue, from [`Self::open_model_command`].
    async fn ask_as_turn(&mut self, question: &str) -> Result<Arc<str>, SideQuestionError> {
        let queued = self.inner.state.lock().queue.running().cloned();
        let queued = queued.ok_or(SideQuestionError::Closed(MessageRefused::Closed))?;
        let (answer, usage) = match self.open_in_time(&queued.scope).await {
            Ok(()) => self.ask_aside(&queued.scope, question).await,
            Err(error) => {
                let failed = match queued.scope.cause() {
                    Some(cause) => PlainAnswerError::Stopped(cause).into(),
                    None => SideQuestionError::NotOpen(error),
                };
                (Err(failed), Usage::default())
            }
        };
        let error = answer.as_ref().err();
        let reason = error.map_or(StopReason::Completed, SideQuestionError::stop_reason);
        let outcome = MessageOutcome::of_model_command(reason, true, usage);
        self.end_model_command(&queued, outcome);
        answer
    }

    async fn ask_aside(
        &mut self,
        scope: &Scope,
        question: &str,
    ) -> (Result<Arc<str>, SideQuestionError>, Usage) {
        let conversation = self
            .writer()
            .map(|writer| Arc::clone(writer.state().conversation()));
        let Some(open) = &self.resources else {
            let closed = SideQuestionError::Closed(MessageRefused::Closed);
            return (Err(closed), Usage::default());
        };
        let (agent, id) = (&open.session.agent, &self.inner.id);
        let asking = answer_plainly(agent, scope, id, conversation.unwrap_or_default(), question);
        let (answer, usage) = asking.await;
        let at = (self.inner.host.options.now)();
        let record = SessionRecord::Metered { at, usage };
        if usage != Usage::default()
            && let Err(error) = self.append(vec![record]).await
        {
            return (Err(error.into()), usage);
        }
        (answer.map_err(SideQuestionError::from), usage)
    }

    fn end_model_command(&self, queued: &QueuedTurn, outcome: MessageOutcome) {
        queued.state.resolve(outcome);
        queued.scope.close();
        drop(self.inner.state.lock().queue.end(|_| false));
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
