//! `session.queue.*`: the messages and slash commands of a session that wait.

use allstop_core::{Cause, CauseKind, MessageId};
use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::{MethodAnswer, MethodCx, open_session, read, ready};
use crate::hosted::HostedSession;

/// Maximum number of shown characters of a message. A user recognizes a message by its beginning.
const SHOWN_CHARS_MAX: usize = 500;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueueParams {
    session_id: String,
    id: Option<String>,
}

/// A message or a command that waits.
struct PendingItem {
    id: String,
    kind: &'static str,
    text: String,
    mode: Value,
}

/// Returns the messages and the commands in the order of their arrival. Their ids have this order.
fn items_of(session: &HostedSession) -> Vec<PendingItem> {
    let messages = session.session.waiting().into_iter();
    let messages = messages.filter(|message| !message.is_steered);
    let messages = messages.map(|message| {
        let facts = session.facts.message(&message.id);
        PendingItem {
            id: message.id.to_string(),
            kind: "message",
            text: shown(&message.text),
            mode: facts.get("agentMode").cloned().unwrap_or_default(),
        }
    });
    let commands = session.commands.all().into_iter();
    let commands = commands.map(|command| PendingItem {
        id: command.id.to_string(),
        kind: "command",
        text: shown(&command.text),
        mode: Value::Null,
    });
    let mut items: Vec<_> = messages.chain(commands).collect();
    items.sort_by(|a, b| a.id.cmp(&b.id));
    items
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

/// Removes a waiting message or command. Returns false if it does not wait.
fn remove(session: &HostedSession, id: &str) -> bool {
    let cause = Cause::new(CauseKind::User)
        .by("copilot")
        .detail("removed from the queue");
    let message = MessageId::new(id);
    let is_removed = session.commands.remove(id) || session.session.withdraw(&message, cause);
    if is_removed {
        session.send_ephemeral("pending_messages.modified", json!({}));
    }
    is_removed
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: QueueParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let waiting = || session.session.waiting();
    match method {
        "session.queue.pendingItems" => {
            let items = items_of(&session).into_iter().map(|item| {
                let mode = item.mode.as_str().unwrap_or("interactive");
                json!({ "id": item.id, "kind": item.kind, "displayText": item.text, "agentMode": mode })
            });
            let items: Vec<_> = items.collect();
            let steered = waiting().into_iter().filter(|message| message.is_steered);
            let steered: Vec<_> = steered.map(|message| shown(&message.text)).collect();
            ready(json!({ "items": items, "steeringMessages": steered }))
        }
        "session.queue.hasPending" => {
            let has_pending = !waiting().is_empty() || !session.commands.all().is_empty();
            ready(json!({ "hasPending": has_pending }))
        }
        "session.queue.removeMostRecent" => {
            let last = items_of(&session).pop();
            let is_removed = last.is_some_and(|item| remove(&session, &item.id));
            ready(json!({ "removed": is_removed }))
        }
        "session.queue.removeAt" => {
            let id = params.id.unwrap_or_default();
            ready(json!({ "removed": remove(&session, &id) }))
        }
        "session.queue.clear" => {
            for item in items_of(&session) {
                remove(&session, &item.id);
            }
            ready(json!({}))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}
