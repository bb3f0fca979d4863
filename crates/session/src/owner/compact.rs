//! Compaction: the model writes a summary, then one record replaces the messages. The model call runs in a scope, so a
//! stop can end it.

use std::sync::Arc;

use allstop_agent::{EventSink, RunHistory, RunRequest, TurnErrorKind};
use allstop_core::message::Message;
use allstop_core::record::SessionRecord;
use allstop_core::turn::Conversation;
use allstop_core::{StopReason, Usage};
use allstop_scope::Scope;

use super::SessionOwner;
use crate::compaction::{
    ASK_SUMMARY, CompactError, CompactionResult, TEXT_BYTES_MAX, cut, shortened, tokens,
};
use crate::queued_turn::QueuedTurn;

impl SessionOwner {
    /// Compacts before a turn if the conversation is too long. The turn runs even if the compaction fails. If the
    /// conversation is too long for the model, the provider returns an error.
    pub(super) async fn compact_if_long(&mut self, queued: &QueuedTurn) {
        let Some(compaction) = self.inner.host.options.compaction else {
            return;
        };
        let Some(writer) = self.writer() else { return };
        if tokens(writer.state().conversation()) <= compaction.tokens_max {
            return;
        }
        if let Err(error) = self.compact(&queued.scope, compaction.turns_kept).await {
            tracing::warn!(%error, "the long conversation was not compacted");
        }
        self.publish();
    }

    /// Replaces all turns except the newest by a summary.
    pub(super) async fn compact(
        &mut self,
        scope: &Scope,
        turns_kept: u32,
    ) -> Result<CompactionResult, CompactError> {
        let Some(writer) = self.writer() else {
            return Err(CompactError::TooShort(0));
        };
        let conversation = Arc::clone(writer.state().conversation());
        let Some((messages_dropped, turns_dropped)) = cut(&conversation, turns_kept) else {
            return Err(CompactError::TooShort(conversation.spans.len()));
        };
        let dropped = conversation.messages.get(..messages_dropped as usize);
        let (summary, usage) = self.summarise(scope, dropped.unwrap_or_default()).await;
        let at = (self.inner.host.options.now)();
        let record = match &summary {
            Ok(summary) => SessionRecord::Compacted {
                at,
                messages_dropped,
                turns_dropped,
                summary: Some(Arc::clone(summary)),
                usage,
            },
            // The usage counts even without a summary.
            Err(_) => SessionRecord::Metered { at, usage },
        };
        if summary.is_ok() || usage != Usage::default() {
            self.append(vec![record]).await?;
        }
        Ok(CompactionResult {
            messages_dropped,
            turns_dropped,
            summary: summary?,
            usage,
        })
    }

    /// Asks for a summary. While the provider refuses the request, tries again with shorter texts.
    async fn summarise(
        &self,
        scope: &Scope,
        messages: &[Arc<Message>],
    ) -> (Result<Arc<str>, CompactError>, Usage) {
        let mut usage = Usage::default();
        let mut refused = CompactError::Refused(String::new());
        for bytes_max in TEXT_BYTES_MAX {
            let dropped = Conversation {
                messages: shortened(messages, bytes_max),
                ..Conversation::default()
            };
            let (summary, used) = self.ask_summary(scope, dropped).await;
            usage += used;
            match summary {
                Err(error @ CompactError::Refused(_)) => refused = error,
                ended => return (ended, usage),
            }
        }
        (Err(refused), usage)
    }

    async fn ask_summary(
        &self,
        scope: &Scope,
        dropped: Conversation,
    ) -> (Result<Arc<str>, CompactError>, Usage) {
        let Some(open) = &self.resources else {
            let why = "the session is not open".to_owned();
            return (Err(CompactError::NoSummary(why)), Usage::default());
        };
        let history = RunHistory::bare(self.inner.id.clone(), Arc::new(dropped));
        let request = RunRequest::new(history, ASK_SUMMARY);
        let run = open
            .session
            .agent
            .plain()
            .start(scope, request, EventSink::none());
        let turn = match run.finish().await {
            Ok(mut outcome) => outcome.turns.pop(),
            Err(_) => None,
        };
        let Some(turn) = turn else {
            let why = "the engine was lost".to_owned();
            return (Err(CompactError::NoSummary(why)), Usage::default());
        };
        let summary = match (turn.stop_reason, turn.cause, turn.error) {
            (StopReason::Completed, ..) if !turn.output.trim().is_empty() => Ok(turn.output),
            (StopReason::Completed, ..) => {
                Err(CompactError::NoSummary("an empty answer".to_owned()))
            }
            (_, _, Some(error)) if error.kind == TurnErrorKind::Invalid => {
                Err(CompactError::Refused(error.message))
            }
            (_, _, Some(error)) => Err(CompactError::NoSummary(error.message)),
            (_, Some(cause), _) => Err(CompactError::Stopped(cause)),
            (reason, ..) => Err(CompactError::NoSummary(reason.as_str().to_owned())),
        };
        (summary, turn.usage)
    }
}
