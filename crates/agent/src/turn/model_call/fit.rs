//! Fits the request of a step into the context window of the model, before the call and after the provider has refused
//! a longer request.
//!
//! First, older tool results are shortened in the request. If that is not enough, the model summarises the oldest turns.
//! The summary is work of the turn: a stop ends it, and the conversation stays unchanged. The owner of the session
//! records the summary after the commit of the turn, because only records between two turns change the conversation
//! ([`TurnOutcome::summary`](crate::TurnOutcome::summary)).

use std::sync::Arc;

use allstop_core::{Message, Usage};

use super::{RunningTurn, TurnInterrupt};
use crate::agent::Agent;
use crate::event::AgentEvent;
use crate::oldest_turns::{TurnsSummary, newest_turns_within, oldest_turns, tokens_of};
use crate::settings::ContextLimits;
use crate::summary::{SummaryError, summarise};

/// Result of an attempt to fit a request.
#[derive(Debug, Default)]
pub(super) struct FitResult {
    /// True if the request is now shorter.
    pub(super) is_shorter: bool,
    /// Usage of the model call for the summary.
    pub(super) usage: Usage,
}

impl RunningTurn<'_> {
    /// Shortens the request of this step if it is longer than the limit, or has too many images.
    pub(super) async fn fit_request(&mut self, step: u32) -> FitResult {
        self.view.limit_images(&self.draft.request_messages());
        let limits = self.parts().settings.context;
        let limit = limits.and_then(|limits| self.context_tokens_max.or(limits.tokens_max));
        match (limits, limit) {
            (Some(limits), Some(tokens_max)) if self.request_tokens() > tokens_max => {
                // A shorter request than necessary, so that the next steps change nothing.
                Box::pin(self.shorten_request(step, limits, tokens_max, tokens_max / 4 * 3)).await
            }
            _ => FitResult::default(),
        }
    }

    /// Shortens the request of this step to half, because the provider has refused it as too long. Its estimated length
    /// may be wrong, and the context window may be unknown.
    pub(super) async fn fit_refused_request(&mut self, step: u32) -> FitResult {
        let Some(limits) = self.parts().settings.context else {
            return FitResult::default();
        };
        let refused = self.request_tokens();
        self.context_tokens_max = Some(refused / 4 * 3);
        let half = refused / 2;
        Box::pin(self.shorten_request(step, limits, half, half)).await
    }

    async fn shorten_request(
        &mut self,
        step: u32,
        limits: ContextLimits,
        tokens_max: u64,
        target: u64,
    ) -> FitResult {
        let all = self.draft.request_messages();
        let other = self.tokens_besides_messages();
        let messages_max = |tokens: u64| tokens.saturating_sub(other);
        let results = self.view.shorten(&all, messages_max(target));
        if results > 0 {
            self.cx
                .events
                .send(|| AgentEvent::RequestShortened { step, results });
        }
        let mut fit = FitResult {
            is_shorter: results > 0,
            usage: Usage::default(),
        };
        if tokens_of(&self.view.apply(&all)) <= messages_max(tokens_max)
            || self.view.summary().is_some()
        {
            return fit;
        }
        let base = Arc::clone(self.draft.base());
        let kept = newest_turns_within(&base, limits.turns_kept, messages_max(target) / 2);
        let Some((messages, turns)) = oldest_turns(&base, kept) else {
            return fit;
        };
        self.cx.events.send(|| AgentEvent::SummaryStarted {
            turns,
            tokens: tokens_of(&all),
        });
        let dropped = base.messages.get(..messages as usize);
        let (summary, usage) = self.ask_summary(dropped.unwrap_or_default(), limits).await;
        fit.usage = usage;
        match summary {
            Ok(text) => {
                self.view.summarise(TurnsSummary {
                    messages,
                    turns,
                    text,
                });
                fit.is_shorter = true;
            }
            // The caller notices the stop before the next call.
            Err(SummaryError::Stopped(_)) => {}
            Err(error) => {
                tracing::warn!(%error, "the long conversation was not summarised");
                let error = error.to_string();
                self.cx.events.send(|| AgentEvent::SummaryFailed { error });
            }
        }
        fit
    }

    /// Asks for a summary. After a stop, the receipt of the turn begins while the call is registered, so that the receipt
    /// lists the call.
    async fn ask_summary(
        &mut self,
        messages: &[Arc<Message>],
        limits: ContextLimits,
    ) -> (Result<Arc<str>, SummaryError>, Usage) {
        let agent = Agent::of_parts(Arc::clone(self.cx.parts));
        let (work, session_id) = (self.work.clone(), self.history.session_id().clone());
        let asked = summarise(&agent, &work, &session_id, messages, limits.tokens_max);
        let mut asked = std::pin::pin!(asked);
        tokio::select! {
            biased;
            () = work.stopped() => {}
            ended = &mut asked => {
                self.record_activity();
                return ended;
            }
        }
        let (cause, ..) = self.why(&TurnInterrupt::Stopped);
        let Some(account) = self.begin_account(cause.clone()) else {
            return asked.await;
        };
        tokio::select! {
            biased;
            ended = asked => ended,
            _call_is_in_the_receipt = account.receipt() => {
                (Err(SummaryError::Stopped(cause)), Usage::default())
            }
        }
    }

    /// Estimated tokens of the request: messages, system prompt and tools.
    pub(super) fn request_tokens(&self) -> u64 {
        let messages = self.view.apply(&self.draft.request_messages());
        tokens_of(&messages) + self.tokens_besides_messages()
    }

    fn tokens_besides_messages(&self) -> u64 {
        let system = self.parts().settings.system.as_ref();
        let context = self.cx.context;
        let texts = system.into_iter().chain(context).map(|text| text.len());
        let tools = self.parts().tools.now();
        let tools = tools.declarations.iter().map(|tool| {
            let schema = serde_json::to_string(&tool.input_schema).map_or(0, |json| json.len());
            tool.name.len() + tool.description.len() + schema
        });
        let answer = self.parts().settings.answer.as_ref();
        let answer = answer.map(|format| format.schema().schema.to_string().len());
        Usage::estimate_tokens(texts.chain(tools).chain(answer).sum())
    }
}
