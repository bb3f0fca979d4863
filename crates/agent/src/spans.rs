//! Spans of turns, steps, model calls, tool calls, hooks and guardrails, for subscribers of `tracing`. Their names and
//! fields follow the semantic conventions of OpenTelemetry for generative AI; fields of Allstop begin with `allstop.`.
//! No field contains text of a prompt, an answer, a tool's arguments or a tool's result. A tracer that keeps such texts
//! ([`SpanLinks::keeps_texts`]) gets them apart from the fields.

use std::sync::Arc;

use allstop_core::{
    Cause, FinishReason, Message, Receipt, SessionId, ToolCall, TraceContext, TurnNumber, Usage,
};
use allstop_model::ModelErrorKind;
use serde::Serialize;
use tracing::Span;
use tracing::field::Empty;

use crate::guardrail::GuardrailStage;
use crate::outcome::TurnOutcome;
use crate::parts::AgentParts;
use crate::span_links::SpanLinks;
use crate::span_texts;

/// Span of a piece of work. Dropping this value ends the span, even if work inside still runs.
pub(crate) struct WorkSpan {
    pub(crate) span: Span,
    links: Option<Arc<dyn SpanLinks>>,
}

impl Drop for WorkSpan {
    fn drop(&mut self) {
        if let Some(links) = &self.links {
            links.end(&self.span);
        }
    }
}

impl WorkSpan {
    /// Span of a turn.
    pub(crate) fn turn(
        parts: &AgentParts,
        session: &SessionId,
        turn: TurnNumber,
        parent: Option<&TraceContext>,
    ) -> Self {
        let (provider, model) = provider_and_model(parts.model.name());
        let agent = parts.name.as_deref();
        let span = tracing::info_span!(
            "turn",
            otel.name = span_name("invoke_agent", agent.unwrap_or_default()),
            otel.kind = "internal",
            otel.status_code = Empty,
            gen_ai.operation.name = "invoke_agent",
            gen_ai.agent.name = agent,
            gen_ai.provider.name = provider,
            gen_ai.request.model = model,
            gen_ai.conversation.id = session.as_str(),
            gen_ai.response.finish_reasons = Empty,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            error.type = Empty,
            allstop.turn = i64::from(turn.0),
            allstop.steps = Empty,
            allstop.stop_reason = Empty,
            allstop.stop.cause = Empty,
            allstop.stop.quiet = Empty,
            allstop.stop.items.finished = Empty,
            allstop.stop.items.stopped = Empty,
            allstop.stop.items.unknown = Empty,
            allstop.stop.items.still_running = Empty,
            allstop.stop.items.unreachable = Empty,
            allstop.stop.items.refused = Empty,
        );
        let span = Self::linked(span, parts);
        if let (Some(links), Some(parent)) = (&span.links, parent) {
            links.set_parent(&span.span, parent);
        }
        span
    }

    /// Span of a step: a model call and the tool calls of its answer.
    pub(crate) fn step(parts: &AgentParts, step: u32) -> Self {
        Self::detail(parts, || {
            tracing::info_span!("step", allstop.step = i64::from(step))
        })
    }

    /// Span of one attempt of a model call.
    pub(crate) fn model_call(parts: &AgentParts, attempt: u32) -> Self {
        let (provider, model) = provider_and_model(parts.model.name());
        let span = tracing::info_span!(
            "model_call",
            otel.name = span_name("chat", model),
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = provider,
            gen_ai.request.model = model,
            gen_ai.request.max_tokens = parts.settings.output_tokens_max.map(number),
            gen_ai.response.finish_reasons = Empty,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            error.type = Empty,
            allstop.attempt = i64::from(attempt),
            allstop.stop.cause = Empty,
        );
        Self::linked(span, parts)
    }

    /// Span of a tool call.
    pub(crate) fn tool_call(parts: &AgentParts, call: &ToolCall) -> Self {
        let span = tracing::info_span!(
            "tool_call",
            otel.name = span_name("execute_tool", &call.name),
            otel.kind = "internal",
            otel.status_code = Empty,
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = &*call.name,
            gen_ai.tool.type = "function",
            gen_ai.tool.call.id = call.id.as_str(),
            error.type = Empty,
            allstop.stop.cause = Empty,
            allstop.stop.quiet = Empty,
        );
        let span = Self::linked(span, parts);
        span.add_text("gen_ai.tool.call.arguments", || span_texts::arguments(call));
        span
    }

    /// Span of a hook.
    pub(crate) fn hook(parts: &AgentParts, name: &str, event: &'static str) -> Self {
        Self::detail(parts, || {
            tracing::info_span!(
                "hook",
                otel.name = span_name("hook", name),
                allstop.hook.name = name,
                allstop.hook.event = event,
                allstop.verdict = Empty,
            )
        })
    }

    /// Span of a guardrail.
    pub(crate) fn guardrail(parts: &AgentParts, name: &str, stage: GuardrailStage) -> Self {
        Self::detail(parts, || {
            tracing::info_span!(
                "guardrail",
                otel.name = span_name("guardrail", name),
                allstop.guardrail.name = name,
                allstop.guardrail.stage = match stage {
                    GuardrailStage::Input => "input",
                    GuardrailStage::Output => "output",
                },
                allstop.verdict = Empty,
            )
        })
    }

    /// A span that a tracer of only calls does not get.
    fn detail(parts: &AgentParts, span: impl FnOnce() -> Span) -> Self {
        if parts.spans.as_ref().is_some_and(|links| links.only_calls()) {
            return Self {
                span: Span::none(),
                links: None,
            };
        }
        Self::linked(span(), parts)
    }

    fn linked(span: Span, parts: &AgentParts) -> Self {
        let links = parts.spans.clone().filter(|_| !span.is_disabled());
        Self { span, links }
    }

    /// Adds a text if the tracer keeps texts.
    fn add_text(&self, attribute: &'static str, text: impl FnOnce() -> String) {
        if let Some(links) = self.links.as_ref().filter(|links| links.keeps_texts()) {
            links.add_text(&self.span, attribute, text());
        }
    }

    /// Records the messages of a model call, if the tracer keeps texts.
    pub(crate) fn record_request(&self, messages: impl FnOnce() -> Vec<Arc<Message>>) {
        self.add_text(
            "gen_ai.input.messages",
            || span_texts::messages(&messages()),
        );
    }

    /// Records the answer of a model call, if the tracer keeps texts.
    pub(crate) fn record_answer(&self, text: &str, calls: &[ToolCall]) {
        self.add_text("gen_ai.output.messages", || span_texts::answer(text, calls));
    }

    /// Records the result of a tool call, if the tracer keeps texts.
    pub(crate) fn record_result(&self, text: &str) {
        self.add_text("gen_ai.tool.call.result", || {
            span_texts::cut(text).to_owned()
        });
    }

    /// Trace context for the work inside, if the span is traced.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.links.as_ref()?.trace_of(&self.span)
    }

    /// Records the verdict of a hook or a guardrail.
    pub(crate) fn record_verdict(&self, verdict: &'static str) {
        self.span.record("allstop.verdict", verdict);
    }

    /// Records the usage of a model call or a turn.
    pub(crate) fn record_usage(&self, usage: Usage) {
        self.span
            .record("gen_ai.usage.input_tokens", number(usage.input_tokens));
        self.span
            .record("gen_ai.usage.output_tokens", number(usage.output_tokens));
    }

    /// Records the reason why the model ended its answer.
    pub(crate) fn record_finish(&self, finish: FinishReason, has_calls: bool) {
        let reason = match finish {
            FinishReason::Done if has_calls => "tool_calls",
            FinishReason::Done => "stop",
            FinishReason::Length => "length",
            FinishReason::ContentFilter => "content_filter",
        };
        self.span.record("gen_ai.response.finish_reasons", reason);
    }

    /// Records the kind of a failure, without its text: the text may quote a prompt.
    pub(crate) fn record_error(&self, kind: &str) {
        self.span.record("error.type", kind);
        self.span.record("otel.status_code", "ERROR");
    }

    /// Like [`WorkSpan::record_error`], for a failed model call.
    pub(crate) fn record_model_error(&self, kind: ModelErrorKind) {
        self.record_error(kind.as_str());
    }

    /// Like [`WorkSpan::record_error`], for a kind whose word is in its JSON.
    pub(crate) fn record_error_kind(&self, kind: impl Serialize) {
        if self.span.is_disabled() {
            return;
        }
        let word = serde_json::to_value(kind).ok();
        let word = word.as_ref().and_then(|word| word.as_str());
        self.record_error(word.unwrap_or("_OTHER"));
    }

    /// Records that a stop covered the work.
    pub(crate) fn record_cause(&self, cause: &Cause) {
        self.span.record("allstop.stop.cause", cause.kind.as_str());
    }

    /// Records whether a stop has ended all work that it covered.
    pub(crate) fn record_quiet(&self, receipt: &Receipt) {
        self.span.record("allstop.stop.quiet", receipt.quiet());
    }

    /// Records the outcome of a turn.
    pub(crate) fn record_outcome(&self, outcome: &TurnOutcome) {
        if self.span.is_disabled() {
            return;
        }
        self.span
            .record("allstop.stop_reason", outcome.stop_reason.as_str());
        self.span.record("allstop.steps", i64::from(outcome.steps));
        self.record_usage(outcome.usage);
        if let Some(finish) = outcome.finish {
            self.record_finish(finish, false);
        }
        if let Some(error) = &outcome.error {
            self.record_error_kind(error.kind);
        }
        if let Some(cause) = &outcome.cause {
            self.record_cause(cause);
        }
        if let Some(receipt) = &outcome.receipt {
            self.record_quiet(receipt);
            self.record_items(receipt);
        }
    }

    /// Records the number of items in each state that the receipt lists.
    fn record_items(&self, receipt: &Receipt) {
        for (state, field) in ITEM_FIELDS {
            let items = receipt.items().iter();
            let count = items.filter(|item| item.state.as_str() == state).count();
            if count > 0 {
                self.span.record(field, number(count as u64));
            }
        }
    }
}

/// States of the items of a receipt, and the fields with their numbers.
const ITEM_FIELDS: [(&str, &str); 6] = [
    ("finished", "allstop.stop.items.finished"),
    ("stopped", "allstop.stop.items.stopped"),
    ("unknown", "allstop.stop.items.unknown"),
    ("still_running", "allstop.stop.items.still_running"),
    ("unreachable", "allstop.stop.items.unreachable"),
    ("refused", "allstop.stop.items.refused"),
];

/// Number as OpenTelemetry has it. An unsigned number would become a text.
fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Name of a span: the operation and its subject.
fn span_name(operation: &str, subject: &str) -> String {
    format!("{operation} {subject}").trim_end().to_owned()
}

/// Splits the name of a model (`openai::gpt-x`) into the provider, by its name in the conventions, and the model.
fn provider_and_model(name: &str) -> (Option<&str>, &str) {
    let Some((provider, model)) = name.split_once("::") else {
        return (None, name);
    };
    let provider = match provider {
        "gemini" => "gcp.gemini",
        "openai_resp" => "openai",
        "kimi" | "moonshot" => "moonshot_ai",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        other => other,
    };
    (Some(provider), model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_name_has_the_provider_of_the_conventions() {
        for (name, expected) in [
            ("openai::gpt-5", (Some("openai"), "gpt-5")),
            ("gemini::flash", (Some("gcp.gemini"), "flash")),
            ("script::a/b.yaml", (Some("script"), "a/b.yaml")),
            ("echo", (None, "echo")),
        ] {
            assert_eq!(provider_and_model(name), expected);
        }
        assert_eq!(span_name("invoke_agent", ""), "invoke_agent");
    }
}
