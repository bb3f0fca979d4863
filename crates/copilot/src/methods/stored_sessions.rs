//! Sizes, removal and descriptions of the stored sessions.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use allstop_core::{SessionId, Timestamp};
use allstop_jsonrpc::RpcError;
use allstop_log::session::stream_of;
use allstop_log::{LogError, SessionSummary, Version, newest_sessions};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::ids::usable_id;
use super::lifecycle::{delete_session, listed_infos};
use super::method::{MethodAnswer, MethodCx, MethodResult, failed, large, later, read};
use crate::server::CopilotServer;

/// Number of records per read.
const READ_LEN: usize = 512;

const DAY: Duration = Duration::from_hours(24);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredParams {
    #[serde(default)]
    session_ids: Vec<String>,
    #[serde(default)]
    sessions: Vec<Value>,
    #[serde(default)]
    older_than_days: u32,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    exclude_session_ids: Vec<String>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: StoredParams = read(params)?;
    let server = cx.server.clone();
    match method {
        "sessions.getSizes" => Ok(large(async move {
            let mut sizes = Map::new();
            for id in stored_ids(&server).await? {
                sizes.insert(id.to_string(), size_of(&server, &id).await?.into());
            }
            Ok(json!({ "sizes": sizes }))
        })),
        "sessions.bulkDelete" => Ok(later(async move {
            let (mut freed, stored) = (Map::new(), stored_ids(&server).await?);
            for id in params.session_ids {
                let id = usable_id(id)?;
                if !stored.contains(&id) {
                    continue;
                }
                let size = size_of(&server, &id).await?;
                delete_session(&server, &id)
                    .await
                    .map_err(|error| failed(&error))?;
                freed.insert(id.to_string(), size.into());
            }
            Ok(json!({ "freedBytes": freed }))
        })),
        "sessions.pruneOld" => Ok(later(prune(server, params))),
        "sessions.enrichMetadata" => Ok(large(async move {
            let known = listed_infos(&server, None).await?;
            let enriched = params.sessions.into_iter().map(|mut session| {
                let mut infos = known.iter();
                let found = infos.find(|info| info["sessionId"] == session["sessionId"]);
                if let (Value::Object(session), Some(Value::Object(info))) = (&mut session, found) {
                    session.extend(info.clone());
                }
                session
            });
            Ok(json!({ "sessions": enriched.collect::<Vec<_>>() }))
        })),
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

/// Ids of the stored sessions, without the sessions of sub-agents.
async fn stored_ids(server: &CopilotServer) -> Result<Vec<SessionId>, RpcError> {
    let sessions = newest_sessions(&**server.system().log()).await;
    let sessions = sessions.map_err(|error| failed(&error))?.into_iter();
    let ids = sessions.map(|session| session.id);
    Ok(ids.filter(|id| !id.as_str().contains('/')).collect())
}

/// Size of the records of a session in bytes.
async fn size_of(server: &CopilotServer, id: &SessionId) -> Result<usize, RpcError> {
    let size = async {
        let (log, stream) = (server.system().log(), stream_of(id));
        let (mut from, mut bytes) = (Version(1), 0);
        loop {
            let read = log.read(&stream, from, READ_LEN).await?;
            let Some((last, _)) = read.last() else {
                return Ok::<_, LogError>(bytes);
            };
            from = last.next();
            bytes += read.iter().map(|(_, record)| record.len()).sum::<usize>();
        }
    };
    size.await.map_err(|error| failed(&error))
}

/// Deletes the sessions without activity for some days, except open sessions.
async fn prune(server: CopilotServer, params: StoredParams) -> MethodResult {
    let excluded: HashSet<&str> = params
        .exclude_session_ids
        .iter()
        .map(String::as_str)
        .collect();
    let limit: Timestamp = (SystemTime::now() - DAY * params.older_than_days).into();
    let log = server.system().log();
    let sessions = newest_sessions(&**log)
        .await
        .map_err(|error| failed(&error))?;
    let (mut candidates, mut skipped, mut deleted, mut freed) = (vec![], vec![], vec![], 0);
    for listed in sessions {
        let id = listed.id.clone();
        if id.as_str().contains('/') || excluded.contains(id.as_str()) {
            continue;
        }
        let summary = SessionSummary::read(&**log, listed).await;
        let summary = summary.map_err(|error| failed(&error))?;
        let is_old = summary.active_at.is_some_and(|at| at <= limit);
        if !is_old {
            continue;
        }
        if summary.owner.is_some() || server.open_session(&id).is_some() {
            skipped.push(id);
            continue;
        }
        let size = size_of(&server, &id).await?;
        if !params.dry_run {
            delete_session(&server, &id)
                .await
                .map_err(|error| failed(&error))?;
            deleted.push(id.clone());
        }
        freed += size;
        candidates.push(id);
    }
    Ok(json!({
        "candidates": candidates,
        "deleted": deleted,
        "skipped": skipped,
        "freedBytes": freed,
        "dryRun": params.dry_run,
    }))
}
