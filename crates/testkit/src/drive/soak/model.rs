//! A model whose answers are in the message: what it calls, and how long it takes.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Message;
use allstop_model::{Model, ModelError, ModelRequest, ModelStream, Pause, Reply, ScriptedModel};
use futures::future::BoxFuture;
use serde_json::{Value, json};

/// Kinds of messages, with their weights.
pub(super) const KINDS: [(&str, u64); 10] = [
    ("talk", 8),
    ("work", 6),
    ("deaf", 2),
    ("make", 3),
    ("build", 2),
    ("serve", 2),
    ("both", 3),
    ("fail", 1),
    ("divide", 3),
    ("delegate", 2),
];

/// Answers `work 250` by calling the tool `work`, 250 ms after its first words.
#[derive(Debug)]
pub(super) struct SoakModel;

impl Model for SoakModel {
    fn name(&self) -> &'static str {
        "soak"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            let reply = answer(&request.messages);
            ScriptedModel::in_order_of_calls(vec![reply])
                .stream(request)
                .await
        })
    }
}

fn answer(messages: &[Arc<Message>]) -> Reply {
    let newest = messages
        .iter()
        .rposition(|message| matches!(&**message, Message::User { .. } | Message::Note { .. }));
    let (_, since) = messages.split_at(newest.unwrap_or_default());
    let (words, since): (&str, &[_]) = match since.split_first() {
        Some((first, since)) => match &**first {
            Message::User { text } => (text, since),
            _ => ("", since),
        },
        None => ("", since),
    };
    let is_answer = |message: &&Arc<Message>| matches!(***message, Message::Assistant { .. });
    let steps = since.iter().filter(is_answer).count();
    let mut words = words.split_whitespace();
    let kind = words.next().unwrap_or_default();
    let ms = words.next().and_then(|ms| ms.parse().ok()).unwrap_or(5);
    let said = Reply::text("Well,").pause(Pause::For(Duration::from_millis(ms)));
    let said = said.and_text(" so be it.").usage(20, 7);
    if steps > 0 {
        return said;
    }
    let shell = |command: &str, background: bool| -> (&str, Value) {
        let arguments = json!({"command": command, "background": background});
        ("shell", arguments)
    };
    let (tool, arguments) = match kind {
        "work" | "deaf" => (kind, json!({})),
        "make" => shell("make", false),
        "build" => shell("make", true),
        "serve" => shell("npm run dev", true),
        "both" => return said.call("work", json!({})).call("deaf", json!({})),
        // Agents of its own: two side by side, of which one starts a command in the background, or one that goes on.
        "divide" => {
            let first = json!({"prompt": format!("both {ms}")});
            let second = json!({"prompt": format!("build {ms}")});
            return said.call("agent", first).call("agent", second);
        }
        "delegate" => {
            let prompt = format!("work {ms}");
            ("agent", json!({"prompt": prompt, "background": true}))
        }
        "fail" => return said.disconnect(),
        _ => return said,
    };
    said.call(tool, arguments)
}
