//! Compaction: the model writes a summary, then one record replaces the messages. The model call runs in a scope, so a
//! stop can end it.

use std::sync::Arc;

use allstop_agent::{
    AgentEvent, SummaryError, TurnOutcome, newest_turns_within, oldest_turns, summarise, tokens_of,
};
use allstop_core::message::Message;
use allstop_core::record::SessionRecord;
use allstop_core::{StopReason, Usage};
use allstop_scope::Scope;

use super::SessionOwner;
use crate::compaction::{CompactError, CompactionResult};
use crate::queued_turn::QueuedTurn;

impl SessionOwner {
    /// Compacts before a turn if the conversation with the message is too long. The turn runs even if the compaction
    /// fails. If the conversation is too long for the model, the provider returns an error.
    pub(super) async fn compact_if_long(&mut self, queued: &Arc<QueuedTurn>) {
        let Some(compaction) = self.inner.host.options.compaction else {
            return;
        };
        let Some(writer) = self.writer() else { return };
        let conversation = Arc::clone(writer.state().conversation());
        let message = queued.prompt.tokens_estimated();
        let tokens = tokens_of(&conversation.messages);
        if tokens.saturating_add(message) <= compaction.tokens_max {
            return;
        }
        let request_max = self.request_tokens_max();
        let kept = compaction.turns_kept;
        // With the kept turns, the requests must be short enough for the model.
        let kept = request_max.map_or(kept, |max| {
            newest_turns_within(&conversation, kept, max / 2)
        });
        let Some((_, turns)) = oldest_turns(&conversation, kept) else {
            return;
        };
        let sink = self.inner.hub.sink(queued);
        sink.send(|| AgentEvent::SummaryStarted { turns, tokens });
        let (compacted, _) = self.compact(&queued.scope, kept, request_max).await;
        if let Err(error) = compacted {
            tracing::warn!(%error, "the long conversation was not compacted");
            let error = error.to_string();
            sink.send(|| AgentEvent::SummaryFailed { error });
        }
        self.publish();
    }

    /// Maximum estimated tokens of a request to the model, if its context window is known.
    fn request_tokens_max(&self) -> Option<u64> {
        let agent = &self.resources.as_ref()?.session.agent;
        agent.settings().context?.tokens_max
    }

    /// Replaces all turns except the newest by a summary. If the messages have more than `tokens_max` tokens, the request
    /// for the summary contains them in a shorter form. Also returns the usage, which counts even without a summary.
    pub(super) async fn compact(
        &mut self,
        scope: &Scope,
        turns_kept: u32,
        tokens_max: Option<u64>,
    ) -> (Result<CompactionResult, CompactError>, Usage) {
        let conversation = self
            .writer()
            .map(|writer| Arc::clone(writer.state().conversation()));
        let conversation = conversation.unwrap_or_default();
        let Some((messages_dropped, turns_dropped)) = oldest_turns(&conversation, turns_kept)
        else {
            let too_short = CompactError::TooShort(conversation.spans.len());
            return (Err(too_short), Usage::default());
        };
        let dropped = conversation.messages.get(..messages_dropped as usize);
        let dropped = dropped.unwrap_or_default();
        let (summary, usage) = self.summarise(scope, dropped, tokens_max).await;
        let at = (self.inner.host.options.now)();
        let record = match &summary {
            Ok(summary) => SessionRecord::Compacted {
                at,
                messages_dropped,
                turns_dropped,
                summary: Some(Arc::clone(summary)),
                usage,
            },
            Err(_) => SessionRecord::Metered { at, usage },
        };
        if (summary.is_ok() || usage != Usage::default())
            && let Err(error) = self.append(vec![record]).await
        {
            return (Err(error.into()), usage);
        }
        let compacted = summary.map(|summary| CompactionResult {
            messages_dropped,
            turns_dropped,
            summary,
            usage,
        });
        (compacted.map_err(CompactError::from), usage)
    }

    async fn summarise(
        &self,
        scope: &Scope,
        messages: &[Arc<Message>],
        tokens_max: Option<u64>,
    ) -> (Result<Arc<str>, SummaryError>, Usage) {
        let Some(open) = &self.resources else {
            let why = "the session is not open".to_owned();
            return (Err(SummaryError::NoSummary(why)), Usage::default());
        };
        let agent = &open.session.agent;
        summarise(agent, scope, &self.inner.id, messages, tokens_max).await
    }

    /// Records the summary that a completed turn has used in its requests. The calls of the turn already contain the
    /// usage of the summary.
    pub(super) async fn record_summary_of(&mut self, turn: &TurnOutcome) {
        let Some(summary) = &turn.summary else { return };
        if turn.stop_reason != StopReason::Completed {
            return;
        }
        let record = SessionRecord::Compacted {
            at: (self.inner.host.options.now)(),
            messages_dropped: summary.messages,
            turns_dropped: summary.turns,
            summary: Some(Arc::clone(&summary.text)),
            usage: Usage::default(),
        };
        // Without the record, the next turn begins with the longer conversation.
        if let Err(error) = self.append(vec![record]).await {
            tracing::warn!(%error, "the summary of older turns was not recorded");
        }
        self.publish();
    }
}
