//! Spans of a turn: their parent, their context for tools, and their ends.

use std::sync::Arc;

use allstop_agent::{
    Agent, EventSink, GuardrailStage, GuardrailVerdict, HookEvent, HookVerdict, Prompt, RunRequest,
    SpanLinks, guardrail, hook,
};
use allstop_core::{StopReason, TraceContext};
use allstop_model::Reply;
use allstop_testkit::ToolFn;
use parking_lot::Mutex;
use serde_json::json;
use tracing::Span;

use crate::{agent, ended, history, model, root, tools};

/// Trace contexts of the message and of a tool call.
const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OF_CALL: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

/// Spans that a tool has kept, and the trace contexts of its calls.
type KeptSpans = Mutex<Vec<(Span, Option<TraceContext>)>>;

/// Writes down the calls of the agent.
#[derive(Debug, Default)]
struct NotedLinks(Mutex<Vec<String>>);

impl NotedLinks {
    fn note(&self, span: &Span, event: &str) {
        let name = span.metadata().map_or("", |metadata| metadata.name());
        self.0.lock().push(format!("{name} {event}"));
    }
}

impl SpanLinks for NotedLinks {
    fn set_parent(&self, span: &Span, parent: &TraceContext) {
        assert_eq!(parent.traceparent(), CALLER);
        self.note(span, "continues the caller");
    }

    fn trace_of(&self, _span: &Span) -> Option<TraceContext> {
        TraceContext::new(OF_CALL)
    }

    fn end(&self, span: &Span) {
        self.note(span, "ends");
    }
}

fn spanned_agent(links: &Arc<NotedLinks>, tool: ToolFn) -> Agent {
    let call = Reply::text("Let me see.").call("look", json!({}));
    let model = model(vec![call, Reply::text("Done.")]);
    let only_tools = |event: &HookEvent| matches!(event, HookEvent::ToolStart { .. });
    let hook = hook("audit", async |_cx, _event| HookVerdict::Continue).only(only_tools);
    let check = guardrail("polite", GuardrailStage::Output, async |_cx, _text| {
        GuardrailVerdict::Pass
    });
    agent(&model)
        .tools(tools(vec![tool]))
        .hook(hook)
        .guardrail(check)
        .spans(Arc::clone(links) as _)
        .build()
}

/// A tool that cannot be stopped keeps its span. The spans of the turn end nevertheless.
#[tokio::test(start_paused = true)]
async fn spans_end_with_the_turn_although_work_inside_keeps_them() {
    let _spans = tracing::subscriber::set_default(tracing_subscriber::registry());
    let links = Arc::new(NotedLinks::default());
    let kept = Arc::<KeptSpans>::default();
    let keeping = Arc::clone(&kept);
    let tool = ToolFn::new("look", move |invocation| {
        let kept = Arc::clone(&keeping);
        async move {
            kept.lock().push((Span::current(), invocation.trace));
            "seen".to_owned()
        }
    });
    let agent = spanned_agent(&links, tool);
    let prompt = Prompt {
        trace: TraceContext::new(CALLER),
        ..Prompt::from("hello")
    };
    let request = RunRequest::new(history().await, prompt);
    let scope = root();
    let run = agent.start(&scope, request, EventSink::none());
    let (turn, _) = ended(run.finish().await.expect("the engine does not panic"));
    assert_eq!(turn.stop_reason, StopReason::Completed);
    let noted = links.0.lock().clone();
    let expected = [
        "turn continues the caller",
        "model_call ends",
        "hook ends",
        "tool_call ends",
        "step ends",
        "model_call ends",
        "guardrail ends",
        "step ends",
        "turn ends",
    ];
    assert_eq!(noted, expected);
    let kept = kept.lock();
    let [(span, trace)] = kept.as_slice() else {
        panic!("one call: {kept:?}");
    };
    assert!(!span.is_disabled());
    assert_eq!(*trace, TraceContext::new(OF_CALL));
}

#[tokio::test(start_paused = true)]
async fn tool_gets_the_context_of_the_message_without_a_subscriber() {
    let links = Arc::new(NotedLinks::default());
    let traces: Arc<Mutex<Vec<Option<TraceContext>>>> = Arc::default();
    let seen = Arc::clone(&traces);
    let tool = ToolFn::new("look", move |invocation| {
        seen.lock().push(invocation.trace);
        async { "seen".to_owned() }
    });
    let prompt = Prompt {
        trace: TraceContext::new(CALLER),
        ..Prompt::from("hello")
    };
    let request = RunRequest::new(history().await, prompt);
    let agent = spanned_agent(&links, tool);
    let scope = root();
    let run = agent.start(&scope, request, EventSink::none());
    let (turn, _) = ended(run.finish().await.expect("the engine does not panic"));
    assert_eq!(turn.stop_reason, StopReason::Completed);
    assert_eq!(*traces.lock(), [TraceContext::new(CALLER)]);
    assert!(links.0.lock().is_empty());
}

/// Keeps the texts of the spans.
#[derive(Debug, Default)]
struct KeptTexts(Mutex<Vec<(String, String)>>);

impl SpanLinks for KeptTexts {
    fn set_parent(&self, _span: &Span, _parent: &TraceContext) {}

    fn trace_of(&self, _span: &Span) -> Option<TraceContext> {
        None
    }

    fn end(&self, _span: &Span) {}

    fn keeps_texts(&self) -> bool {
        true
    }

    fn add_text(&self, _span: &Span, attribute: &'static str, text: String) {
        self.0.lock().push((attribute.to_owned(), text));
    }
}

#[tokio::test(start_paused = true)]
async fn tracer_with_texts_gets_messages_answers_arguments_and_results() {
    let _spans = tracing::subscriber::set_default(tracing_subscriber::registry());
    let links = Arc::new(KeptTexts::default());
    let call = Reply::text("Let me see.").call("look", json!({ "at": "x" }));
    let model = model(vec![call, Reply::text("Done.")]);
    let tool = ToolFn::new("look", |_| async { "seen".to_owned() });
    let agent = agent(&model)
        .tools(tools(vec![tool]))
        .spans(Arc::clone(&links) as _)
        .build();
    let request = RunRequest::new(history().await, Prompt::from("go"));
    let scope = root();
    let run = agent.start(&scope, request, EventSink::none());
    let (turn, _) = ended(run.finish().await.expect("the engine does not panic"));
    assert_eq!(turn.stop_reason, StopReason::Completed);
    let texts = links.0.lock().clone();
    let attributes: Vec<_> = texts.iter().map(|(attribute, _)| &**attribute).collect();
    let (input, output) = ("gen_ai.input.messages", "gen_ai.output.messages");
    let (arguments, result) = ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result");
    assert_eq!(
        attributes,
        [input, output, arguments, result, input, output]
    );
    assert_eq!(texts[2].1, r#"{"at":"x"}"#);
    assert_eq!(texts[3].1, "seen");
    assert!(texts[1].1.contains("tool_call"), "{}", texts[1].1);
    assert!(texts[4].1.contains("tool_call_response"), "{}", texts[4].1);
}
