//! The parts of an agent. Each part has a point before, inside and after its work. The parts record in the
//! [`RunWitness`] which work really runs.
//!
//! The point inside the work is a moment at which the part waits. The wait takes a millisecond of the paused clock, and
//! no real time.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{
    Guardrail, GuardrailStage, GuardrailVerdict, Hook, HookCx, HookEvent, HookVerdict,
};
use allstop_core::Message;
use allstop_core::receipt::ItemKind;
use allstop_model::{FinishReason, Model, ModelError, ModelEvent, ModelRequest, ModelStream};
use allstop_scope::Scope;
use allstop_tools::{
    EffectPreview, PermissionAnswer, PermissionQuestion, Prompter, Tool, ToolError, ToolInvocation,
    ToolOutput, ToolSpec,
};
use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};

use crate::observe::{CallEnding, Moment, NEXT_MESSAGE, Points, RunWitness, WitnessedAnswer};

/// Time that a part waits inside its work if it has nothing else to wait for.
pub(crate) const INSIDE: Duration = Duration::from_millis(1);

/// Points and witness in which a part records its work.
#[derive(Debug, Clone)]
pub(crate) struct PartWatch {
    pub(crate) points: Points,
    pub(crate) witness: RunWitness,
}

impl PartWatch {
    pub(crate) fn new() -> Self {
        Self {
            points: Points::new(),
            witness: RunWitness::default(),
        }
    }

    /// Runs one piece of a part's work, with the three points of this piece.
    async fn around<T>(
        &self,
        event: &'static str,
        subject: Arc<str>,
        doing: impl Future<Output = T>,
    ) -> T {
        self.points
            .reach(Moment::Before, event, Arc::clone(&subject));
        tokio::time::sleep(INSIDE).await;
        self.points
            .reach(Moment::Inside, event, Arc::clone(&subject));
        let done = doing.await;
        self.points.reach(Moment::After, event, subject);
        done
    }
}

/// A part, together with the points and the witness in which it records its work.
#[derive(Debug)]
pub(crate) struct Watched<T: ?Sized> {
    inner: Arc<T>,
    watch: PartWatch,
}

impl PartWatch {
    pub(crate) fn part<T: ?Sized>(&self, inner: Arc<T>) -> Arc<Watched<T>> {
        let watch = self.clone();
        Arc::new(Watched { inner, watch })
    }
}

impl Model for Watched<dyn Model> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            let watch = self.watch.clone();
            let messages = request.messages.clone();
            watch.witness.note(|notes, _| notes.requests.push(messages));
            let alive = watch.witness.begin(ItemKind::ModelCall, "");
            if asks_for_the_next(&request.messages) {
                request.probe.no_connection();
                return Ok(ModelStream::new(stream::iter(next_answer())));
            }
            let opening = self.inner.stream(request);
            let opened = watch.around("model_request", "".into(), opening).await?;
            let open = (opened.events, watch, alive, WitnessedAnswer::default());
            let events = stream::unfold(open, |mut open| async move {
                let (events, watch, _, answer) = &mut open;
                watch.points.reach(Moment::Before, "model_chunk", "");
                tokio::time::sleep(INSIDE).await;
                let event = events.next().await?;
                let name = event.as_ref().map_or("error", name_of);
                watch.witness.note(|notes, now| notes.received.push(now));
                watch.points.reach(Moment::Inside, "model_chunk", name);
                match &event {
                    Ok(ModelEvent::Usage(usage)) => {
                        watch.witness.note(|notes, _| notes.delivered += *usage);
                    }
                    Ok(ModelEvent::Text(text)) => answer.text.push_str(text),
                    Ok(ModelEvent::ToolCall(call)) => answer.calls.push(call.clone()),
                    Ok(ModelEvent::End(_)) => {
                        let answer = std::mem::take(answer);
                        watch.witness.note(|notes, _| notes.answers.push(answer));
                    }
                    _ => {}
                }
                Some((event, open))
            });
            Ok(ModelStream::new(events))
        })
    }
}

/// True if the last user message is the message after the explored messages. The scenario's own model does not answer
/// this message.
fn asks_for_the_next(messages: &[Arc<Message>]) -> bool {
    let newest = messages.iter().rev().find_map(|message| match &**message {
        Message::User { text, .. } => Some(text),
        _ => None,
    });
    newest.is_some_and(|text| &**text == NEXT_MESSAGE)
}

/// The answer to the next message: text, and also JSON for agents with an answer schema.
fn next_answer() -> [Result<ModelEvent, ModelError>; 2] {
    [
        Ok(ModelEvent::Text("\"the next answer\"".into())),
        Ok(ModelEvent::End(FinishReason::Done)),
    ]
}

fn name_of(event: &ModelEvent) -> &'static str {
    match event {
        ModelEvent::Text(_) => "text",
        ModelEvent::Reasoning(_) => "reasoning",
        ModelEvent::ToolCallProgress { .. } => "tool_call_progress",
        ModelEvent::ToolCall(_) => "tool_call",
        ModelEvent::Usage(_) => "usage",
        ModelEvent::End(_) => "end",
    }
}

/// Records the end of a call when the future of the call ends or is dropped.
struct NotedEnding<'a> {
    watch: &'a PartWatch,
    scope: Scope,
    id: Arc<str>,
    succeeded: Option<bool>,
}

impl Drop for NotedEnding<'_> {
    fn drop(&mut self) {
        let ending = CallEnding {
            id: Arc::clone(&self.id),
            succeeded: self.succeeded,
            cause: self.scope.cause().map(|cause| cause.kind),
        };
        self.watch
            .witness
            .note(|notes, _| notes.call_endings.push(ending));
    }
}

impl Tool for Watched<dyn Tool> {
    fn spec(&self) -> &ToolSpec {
        self.inner.spec()
    }

    fn preview(&self, invocation: ToolInvocation) -> BoxFuture<'_, Option<EffectPreview>> {
        self.inner.preview(invocation)
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let id: Arc<str> = invocation.call_id.as_str().into();
            let _alive = self.watch.witness.begin_call(&id, &invocation.scope);
            let mut ending = NotedEnding {
                watch: &self.watch,
                scope: invocation.scope.clone(),
                id: Arc::clone(&id),
                succeeded: None,
            };
            let call = async {
                let said = self.inner.call(invocation).await;
                ending.succeeded = Some(said.is_ok());
                said
            };
            self.watch.around("tool", id, call).await
        })
    }
}

impl Prompter for Watched<dyn Prompter> {
    fn shows_questions(&self) -> bool {
        self.inner.shows_questions()
    }

    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(async move {
            let id: Arc<str> = question.call_id.as_str().into();
            let _alive = self
                .watch
                .witness
                .begin(ItemKind::Permission, Arc::clone(&id));
            let answer = self.inner.ask(question);
            self.watch.around("permission_question", id, answer).await
        })
    }
}

impl Hook for Watched<dyn Hook> {
    fn name(&self) -> &Arc<str> {
        self.inner.name()
    }

    fn wants(&self, event: &HookEvent) -> bool {
        self.inner.wants(event)
    }

    fn on(&self, cx: &HookCx, event: HookEvent) -> BoxFuture<'static, HookVerdict> {
        let (watch, moment) = (self.watch.clone(), event.name());
        let name = Arc::clone(self.inner.name());
        let hearing = self.inner.on(cx, event);
        Box::pin(async move {
            let _alive = watch.witness.begin(ItemKind::Hook, name);
            watch.around("hook", moment.into(), hearing).await
        })
    }
}

impl Guardrail for Watched<dyn Guardrail> {
    fn name(&self) -> &Arc<str> {
        self.inner.name()
    }

    fn wants(&self, stage: GuardrailStage) -> bool {
        self.inner.wants(stage)
    }

    fn check(
        &self,
        cx: &HookCx,
        stage: GuardrailStage,
        text: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict> {
        let watch = self.watch.clone();
        let name = Arc::clone(self.inner.name());
        let checking = self.inner.check(cx, stage, text);
        Box::pin(async move {
            let _alive = watch.witness.begin(ItemKind::Guardrail, name);
            watch
                .around(
                    "guardrail",
                    format!("{stage:?}").to_lowercase().into(),
                    checking,
                )
                .await
        })
    }
}
