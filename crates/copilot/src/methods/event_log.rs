//! `session.eventLog.*`: reads the history of a session in pages, from a cursor.

use std::time::Duration;

use allstop_jsonrpc::RpcError;
use allstop_session::{SessionEventKind, Subscription};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::lifecycle::events_of;
use super::method::{MethodAnswer, MethodCx, later, open_session, read};

/// Maximum number of events in an answer.
const EVENTS_MAX: usize = 1_000;
/// Maximum wait for new events. The reader repeats its request afterwards.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// Type of the event that requests a token for an MCP server. A client with interest in it answers such requests.
const TOKEN_REQUEST: &str = "mcp.oauth_required";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventLogParams {
    session_id: String,
    cursor: Option<String>,
    max: Option<usize>,
    wait_ms: Option<u64>,
    /// Types of the events; all types if absent.
    types: Option<EventTypes>,
    event_type: Option<String>,
    handle: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum EventTypes {
    /// The word `*`.
    Word(String),
    Listed(Vec<String>),
}

impl EventTypes {
    fn contains(&self, kind: &str) -> bool {
        match self {
            Self::Word(word) => word == "*" || word == kind,
            Self::Listed(kinds) => kinds.iter().any(|listed| listed == kind),
        }
    }
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: EventLogParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let now = |answer| Ok(MethodAnswer::Now(Ok(answer)));
    let is_tail = match method {
        // Every client receives every event of its sessions, so these methods have no other effect.
        "session.eventLog.registerInterest" => {
            if params.event_type.as_deref() == Some(TOKEN_REQUEST) {
                session.add_token_handler(cx.client.id);
                return now(json!({ "handle": TOKEN_REQUEST }));
            }
            return now(json!({ "handle": "all" }));
        }
        "session.eventLog.releaseInterest" => {
            if params.handle.as_deref() == Some(TOKEN_REQUEST) {
                session.remove_token_handler(cx.client.id);
            }
            return now(json!({ "success": true }));
        }
        "session.eventLog.tail" => true,
        "session.eventLog.read" => false,
        unknown => return Err(RpcError::method_not_found(unknown)),
    };
    // The cursor is the number of the events before it.
    let cursor = match params.cursor.as_deref().map(str::parse::<usize>) {
        None => Some(0),
        Some(parsed) => parsed.ok(),
    };
    let server = cx.server.clone();
    let wait = Duration::from_millis(params.wait_ms.unwrap_or(0)).min(WAIT_MAX);
    Ok(later(async move {
        let mut changes = session.session.subscribe(None);
        let mut notes = session.host_events();
        let deadline = Instant::now() + wait;
        loop {
            let events = events_of(&server, &session).await?;
            if is_tail {
                return Ok(json!({ "cursor": events.len().to_string() }));
            }
            let known = cursor.filter(|cursor| *cursor <= events.len());
            let from = known.unwrap_or(0);
            let is_wanted = |kind: &str| {
                params
                    .types
                    .as_ref()
                    .is_none_or(|types| types.contains(kind))
            };
            let max = params.max.unwrap_or(EVENTS_MAX).clamp(1, EVENTS_MAX);
            let mut page: Vec<_> = events.iter().enumerate().skip(from).collect();
            page.retain(|(_, event)| is_wanted(event.kind));
            let has_more = page.len() > max;
            page.truncate(max);
            let is_due = Instant::now() >= deadline;
            if page.is_empty() && !is_due && known.is_some() {
                let either = async {
                    tokio::select! {
                        () = next_record(&mut changes) => {}
                        _noted_or_closed = notes.recv() => {}
                    }
                };
                let _changed_or_late = timeout_at(deadline, either).await;
                continue;
            }
            let next = if has_more {
                page.last().map_or(from, |(index, _)| index + 1)
            } else {
                events.len()
            };
            let page: Vec<_> = page.into_iter().map(|(_, event)| event).collect();
            return Ok(json!({
                "events": page,
                "cursor": next.to_string(),
                "cursorStatus": if known.is_some() { "ok" } else { "expired" },
                "hasMore": has_more,
            }));
        }
    }))
}

/// Waits for the next record of the session, which may be an event of the history. Never completes after the end of the
/// session.
async fn next_record(changes: &mut Subscription) {
    loop {
        match changes.next().await {
            Ok(Some(event)) if matches!(event.kind, SessionEventKind::Recorded { .. }) => return,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return std::future::pending().await,
        }
    }
}
