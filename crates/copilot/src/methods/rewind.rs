//! `session.history.*` and `sessions.fork`: compaction, removal of turns, and copies of a conversation.

use std::sync::Arc;

use allstop_core::{SessionId, TurnNumber};
use allstop_jsonrpc::RpcError;
use allstop_log::read_session;
use allstop_session::{CompactError, UndoError};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::context::{summary_of, tokens};
use super::lifecycle::events_of;
use super::method::{
    MethodAnswer, MethodCx, MethodResult, failed, large, later, open_session, read, ready,
};
use crate::hosted::HostedSession;
use crate::server::{CopilotServer, LifecycleKind};
use crate::translate::PersistedEvent;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HistoryParams {
    session_id: String,
    event_id: Option<String>,
    to_event_id: Option<String>,
    name: Option<String>,
    mode: Option<String>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: HistoryParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let server = cx.server.clone();
    let event = || {
        let id = params.event_id.clone();
        id.ok_or_else(|| RpcError::invalid_params("`eventId` is missing"))
    };
    match method {
        "session.history.compact" => Ok(later(compact(session))),
        "session.history.truncate" => {
            let event = event()?;
            Ok(later(async move {
                let removed = truncate(&server, &session, &event).await?;
                Ok(json!({ "eventsRemoved": removed }))
            }))
        }
        "session.history.rewind" if params.mode.as_deref() == Some("conversation") => {
            let event = event()?;
            Ok(later(async move {
                let removed = truncate(&server, &session, &event).await?;
                Ok(json!({
                    "outcome": "success",
                    "eventsRemoved": removed,
                    "restoredFiles": [],
                    "skippedFiles": [],
                }))
            }))
        }
        // Changes of files are not tracked.
        "session.history.rewind" => ready(json!({
            "outcome": "file-change-tracking-disabled",
            "restoredFiles": [],
            "skippedFiles": [],
        })),
        "session.history.listRewindPoints" => Ok(large(async move {
            Ok(json!({
                "fileChangeTrackingEnabled": false,
                "unavailableReason": "file-change-tracking-disabled",
                "points": points_of(&server, &session).await?,
            }))
        })),
        "session.history.summarizeForHandoff" => Ok(large(async move {
            let history = session.session.history().await;
            let history = history.map_err(|error| failed(&error))?;
            let summary = summary_of(&history).map_or("", |text| &**text);
            Ok(json!({ "summary": summary }))
        })),
        // The log contains only the end of a compaction, and a request ends with its compaction.
        "session.history.cancelBackgroundCompaction" => ready(json!({ "cancelled": false })),
        "session.history.abortManualCompaction" => ready(json!({ "aborted": false })),
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

async fn compact(session: Arc<HostedSession>) -> MethodResult {
    let before = tokens_of(&session).await?;
    match session.session.compact().await {
        Ok(result) => {
            let after = tokens_of(&session).await?;
            Ok(json!({
                "success": true,
                "tokensRemoved": before.saturating_sub(after),
                "messagesRemoved": result.messages_dropped,
                "summaryContent": result.summary,
            }))
        }
        // The conversation stays as it is.
        Err(CompactError::TooShort(_)) => Ok(json!({
            "success": true,
            "tokensRemoved": 0,
            "messagesRemoved": 0,
        })),
        Err(error) => Err(failed(&error)),
    }
}

/// Estimates the length of the conversation in tokens.
async fn tokens_of(session: &HostedSession) -> Result<u64, RpcError> {
    let history = session.session.history().await;
    let history = history.map_err(|error| failed(&error))?;
    let messages = history.messages.iter();
    let bytes = messages.map(|message| message.bytes()).sum();
    Ok(tokens(bytes))
}

/// Finds the turn whose first event has this id.
async fn turn_of(
    server: &CopilotServer,
    id: &SessionId,
    event: &str,
) -> Result<TurnNumber, RpcError> {
    let (state, _) = read_session(&**server.system().log(), id)
        .await
        .map_err(|error| RpcError::invalid_params(error.to_string()))?;
    let mut spans = state.conversation().spans.iter();
    let found = spans.find(|span| {
        let start = PersistedEvent::turn_start_id(id, span.turn);
        start.to_string().eq_ignore_ascii_case(event)
    });
    found.map(|span| span.turn).ok_or_else(|| {
        RpcError::invalid_params(format!(
            "Event {event} not found: name the event `user.message` of a turn in the conversation"
        ))
    })
}

/// Removes the turn of an event and all later turns. The effects of their calls remain. Returns the number of the removed
/// events.
async fn truncate(
    server: &CopilotServer,
    session: &HostedSession,
    event: &str,
) -> Result<usize, RpcError> {
    let turn = turn_of(server, session.id(), event).await?;
    let before = events_of(server, session).await?.len();
    loop {
        let undone = session.session.undo().await.map_err(|error| match error {
            UndoError::Busy => RpcError::overloaded(error.to_string()),
            error => failed(&error),
        })?;
        if undone <= turn {
            break;
        }
    }
    let after = events_of(server, session).await?.len();
    let removed = before.saturating_sub(after);
    let data = json!({ "eventsRemoved": removed, "upToEventId": event });
    session.send_ephemeral("session.snapshot_rewind", data);
    Ok(removed)
}

/// Describes the turns to which the conversation can go back.
async fn points_of(
    server: &CopilotServer,
    session: &HostedSession,
) -> Result<Vec<Value>, RpcError> {
    let events = events_of(server, session).await?;
    let starts = events.iter().filter(|event| event.kind == "user.message");
    let points = starts.map(|event| {
        json!({
            "eventId": event.id,
            "userMessage": event.data["content"],
            "timestamp": event.timestamp,
            "canRestoreFiles": false,
            "fileCount": 0,
            "turnChangedFiles": false,
            "linesAdded": 0,
            "linesRemoved": 0,
            "isAutopilotContinuation": false,
        })
    });
    Ok(points.collect())
}

/// `sessions.fork`: copies the turns before an event, or all turns, into a new session.
pub(super) fn fork(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: HistoryParams = read(params)?;
    let (server, from) = (cx.server.clone(), super::ids::usable_id(params.session_id)?);
    Ok(later(async move {
        let before = match &params.to_event_id {
            Some(event) => Some(turn_of(&server, &from, event).await?),
            None => None,
        };
        let to = SessionId::new(ulid::Ulid::generate().to_string());
        let copied = server
            .system()
            .fork_session(&from, to.clone(), before)
            .await;
        copied.map_err(|error| {
            RpcError::invalid_params(format!("session {from} cannot be copied: {error}"))
        })?;
        let mut answer = json!({ "sessionId": to });
        if let Some(name) = params.name {
            let state = HostedSession::stored_state(&server, &to).await;
            let named = state.set_name(&name, true).await;
            named.map_err(|error| failed(&error))?;
            answer["name"] = name.into();
        }
        server.send_lifecycle(LifecycleKind::Created, &to);
        Ok(answer)
    }))
}
