//! Operations on whole sessions: detach, delete, list, history.

use std::sync::Arc;

use allstop_core::record::SessionRecord;
use allstop_core::{Cause, CauseKind, SessionId};
use allstop_host::finish_work;
use allstop_jsonrpc::RpcError;
use allstop_log::session::{decode, stream_of};
use allstop_log::{ListedSession, Log, LogError, SessionSummary, Version, newest_sessions};
use allstop_session::{ReserveResult, Session};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::ids::usable_id;
use super::method::{
    MethodAnswer, MethodCx, MethodResult, failed, large, later, open_session, read, whole,
};
use crate::event::CopilotEvent;
use crate::hosted::HostedSession;
use crate::server::{CopilotServer, LifecycleKind};
use crate::translate::{HistorySource, history};

/// Number of records per read.
const READ_LEN: usize = 512;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionParams {
    session_id: Option<String>,
}

fn id_of(params: Option<&RawValue>) -> Result<SessionId, RpcError> {
    let params: SessionParams = read(params)?;
    let id = params.session_id;
    usable_id(id.ok_or_else(|| RpcError::invalid_params("`sessionId` is missing"))?)
}

/// Detaches the client from a session. If the client is the last client, the session is closed: all work of the session
/// is stopped, and the session can be resumed later.
pub(super) fn detach(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let id = id_of(params)?;
    let (server, client) = (cx.server, cx.client.id);
    let close_if = |is_to_close: &dyn Fn(&HostedSession) -> bool| {
        let cause = Cause::new(CauseKind::Disconnect).detail("its last client left");
        server.close_session_if(&id, is_to_close, cause)
    };
    let closing = close_if(&|session| session.is_last(client)).or_else(|| {
        let was_last = server.open_session(&id)?.detach(client);
        // All other clients may have left since the first check.
        was_last
            .then(|| close_if(&HostedSession::is_alone))
            .flatten()
    });
    Ok(later(async move {
        let receipt = match closing {
            Some(closing) => closing.await.ok(),
            None => None,
        };
        Ok(json!({ "success": true, "receipt": receipt }))
    }))
}

pub(super) fn delete(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let id = id_of(params)?;
    let server = cx.server.clone();
    let deleting = async move {
        match delete_session(&server, &id).await {
            Ok(()) => json!({ "success": true }),
            Err(error) => json!({ "success": false, "error": error }),
        }
    };
    let name = "deletion of a session".to_owned();
    let deleting = finish_work(cx.server.connections(), name, deleting);
    Ok(later(whole(deleting)))
}

/// Stops all work of a session, closes the session, and deletes it. Returns the reason if the session stays.
pub(super) async fn delete_session(server: &CopilotServer, id: &SessionId) -> Result<(), String> {
    let has_clients = |session: &Session| session.part::<HostedSession>().is_some();
    let cause = Cause::new(CauseKind::User).by("copilot").detail("deleted");
    let reservation = loop {
        match server.registry().reserve(id, has_clients).await {
            ReserveResult::Reserved(reservation) => break reservation,
            ReserveResult::Open(false) => return Err(format!("session {id} is in use")),
            ReserveResult::Open(true) => {
                if let Some(closing) = server.close_session_if(id, |_| true, cause.clone()) {
                    let _closed_or_lost = closing.await;
                }
            }
        }
    };
    let removed = server.system().remove_session(id).await;
    drop(reservation);
    removed.map_err(|error| error.to_string())?;
    server.warnings().remove(id);
    server.send_lifecycle(LifecycleKind::Deleted, id);
    Ok(())
}

pub(super) fn look(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let server = cx.server.clone();
    let wanted = match method {
        "session.getMetadata" => Some(id_of(params)?),
        _ => None,
    };
    let is_list = method == "session.list";
    if !is_list && wanted.is_none() && method != "session.getLastId" {
        return Err(RpcError::method_not_found(method));
    }
    Ok(large(async move {
        if is_list {
            return Ok(json!({ "sessions": listed_infos(&server, None).await? }));
        }
        let log = server.system().log();
        let sessions = newest_sessions(&**log).await;
        let sessions = sessions.map_err(|error| failed(&error))?.into_iter();
        let mut sessions = sessions.filter(|session| !session.id.as_str().contains('/'));
        let Some(wanted) = wanted else {
            let last = sessions.next().map(|session| session.id);
            return Ok(json!({ "sessionId": last }));
        };
        let info = match sessions.find(|session| session.id == wanted) {
            Some(session) => Some(info_of(log, session).await?),
            None => None,
        };
        Ok(json!({ "session": info }))
    }))
}

async fn info_of(log: &Arc<dyn Log>, listed: ListedSession) -> MethodResult {
    let session = SessionSummary::read(&**log, listed).await;
    let session = session.map_err(|error| failed(&error))?;
    let first = read_records(log, &session.id, 2).await;
    let first = first.map_err(|error| failed(&error))?;
    let mut info = json!({
        "sessionId": session.id,
        "modifiedTime": session.active_at,
        "startTime": session.active_at,
        "isRemote": false,
    });
    let Value::Object(fields) = &mut info else {
        return Ok(info);
    };
    for record in &first {
        match record {
            SessionRecord::SessionOpened { at, folder, .. } => {
                fields.insert("startTime".to_owned(), json!(at));
                fields.insert("context".to_owned(), json!({ "cwd": folder }));
            }
            SessionRecord::TurnStarted { input, .. } => {
                let line = input.lines().next().unwrap_or_default();
                let line: String = line.chars().take(120).collect();
                fields.insert("summary".to_owned(), line.into());
            }
            _ => {}
        }
    }
    Ok(info)
}

/// Reads the first records of a session. Omits records that this version cannot decode.
async fn read_records(
    log: &Arc<dyn Log>,
    id: &SessionId,
    max: usize,
) -> Result<Vec<SessionRecord>, LogError> {
    let (stream, mut from, mut records) = (stream_of(id), Version(1), Vec::new());
    while records.len() < max {
        let read = log.read(&stream, from, READ_LEN.min(max)).await?;
        let Some((last, _)) = read.last() else {
            break;
        };
        from = last.next();
        let readable = read
            .iter()
            .filter_map(|(_, bytes)| decode(bytes).ok().flatten());
        records.extend(readable);
    }
    records.truncate(max);
    Ok(records)
}

/// `session.getMessages`: returns the events of the ended turns.
pub(super) fn messages(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let id = id_of(params)?;
    let server = cx.server.clone();
    let session = open_session(cx, id.as_str())?;
    Ok(large(async move {
        Ok(json!({ "events": events_of(&server, &session).await? }))
    }))
}

/// Returns the events of the ended turns of a session.
pub(super) async fn events_of(
    server: &CopilotServer,
    session: &HostedSession,
) -> Result<Vec<CopilotEvent>, RpcError> {
    let id = session.id();
    let records = read_records(server.system().log(), id, usize::MAX).await;
    let records = records.map_err(|error| failed(&error))?;
    if records.is_empty() {
        return Err(RpcError::invalid_params(format!("session {id} not found")));
    }
    let source = HistorySource {
        session: id,
        version: &server.options().version,
        model: session.model_name(),
        reasoning_effort: session.reasoning_effort(),
        facts: &session.facts,
    };
    Ok(history(source, &records))
}

/// Describes all sessions that were created in a folder, the newest session first; all sessions without a folder.
pub(super) async fn listed_infos(
    server: &CopilotServer,
    folder: Option<&str>,
) -> Result<Vec<Value>, RpcError> {
    let log = server.system().log();
    let sessions = newest_sessions(&**log).await;
    let sessions = sessions.map_err(|error| failed(&error))?.into_iter();
    let mut infos = Vec::new();
    for session in sessions.filter(|session| !session.id.as_str().contains('/')) {
        let info = info_of(log, session).await?;
        let cwd = info.get("context").and_then(|context| context.get("cwd"));
        if folder.is_none_or(|folder| cwd.and_then(Value::as_str) == Some(folder)) {
            infos.push(info);
        }
    }
    Ok(infos)
}
