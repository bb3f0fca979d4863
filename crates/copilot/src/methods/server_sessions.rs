//! `sessions.*`: the stored sessions of the server.

use allstop_core::{Cause, CauseKind, SessionId};
use allstop_jsonrpc::RpcError;
use allstop_log::newest_sessions;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::ids::usable_id;
use super::lifecycle::listed_infos;
use super::method::{MethodAnswer, MethodCx, failed, large, later, open_session, read, whole};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionsParams {
    session_id: Option<String>,
    session_ids: Option<Vec<String>>,
    prefix: Option<String>,
    filter: Option<FolderParams>,
    context: Option<FolderParams>,
    plugins: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct OpenKindParams {
    /// The SDKs for Go and Node may leave it out.
    kind: Option<String>,
    context: Option<FolderParams>,
}

#[derive(Deserialize)]
struct FolderParams {
    cwd: Option<String>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: SessionsParams = read(params)?;
    let now = |answer: Value| Ok(MethodAnswer::Now(Ok(answer)));
    let id = || {
        let id = params.session_id.clone();
        usable_id(id.ok_or_else(|| RpcError::invalid_params("`sessionId` is missing"))?)
    };
    match method {
        "sessions.list" => Ok(list(cx, params.filter)),
        "sessions.getLastForContext" => Ok(last(cx, params.context)),
        "sessions.findByPrefix" => {
            let prefix = params.prefix.unwrap_or_default();
            Ok(find(cx, prefix))
        }
        // Tasks are the background work of a session, whose ids are unique only in the session.
        "sessions.findByTaskId" => now(json!({})),
        "sessions.checkInUse" => {
            let ids = params.session_ids.unwrap_or_default().into_iter();
            let open = ids.filter(|id| {
                cx.server
                    .open_session(&SessionId::new(id.as_str()))
                    .is_some()
            });
            now(json!({ "inUse": open.collect::<Vec<_>>() }))
        }
        // Each record is stored when it is written, and a closed session has no lock.
        "sessions.save" | "sessions.releaseLock" => {
            id()?;
            now(json!({}))
        }
        "sessions.close" => Ok(close(cx, &id()?)),
        "sessions.connect" => Err(RpcError::invalid_params(format!(
            "the remote session {} is unknown: this server has no remote sessions",
            id()?
        ))),
        "sessions.setAdditionalPlugins" if params.plugins.is_none_or(|all| all.is_empty()) => {
            now(json!({}))
        }
        "sessions.setAdditionalPlugins" => {
            let message = "`plugins` are not offered: leave the list empty";
            Err(RpcError::invalid_params(message))
        }
        // A session has no hooks of plugins or repositories.
        "sessions.reloadPluginHooks" => {
            open_session(cx, id()?.as_str())?;
            now(json!({}))
        }
        "sessions.loadDeferredRepoHooks" => {
            open_session(cx, id()?.as_str())?;
            now(json!({ "hookCount": 0, "startupPrompts": [] }))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

fn list(cx: &MethodCx<'_>, filter: Option<FolderParams>) -> MethodAnswer {
    let server = cx.server.clone();
    large(async move {
        let folder = filter.and_then(|filter| filter.cwd);
        let infos = listed_infos(&server, folder.as_deref()).await?;
        Ok(json!({ "sessions": infos }))
    })
}

fn last(cx: &MethodCx<'_>, context: Option<FolderParams>) -> MethodAnswer {
    let server = cx.server.clone();
    large(async move {
        let folder = context.and_then(|context| context.cwd);
        let infos = listed_infos(&server, folder.as_deref()).await?;
        let last = infos.first().and_then(|info| info.get("sessionId"));
        Ok(last.map_or_else(|| json!({}), |id| json!({ "sessionId": id })))
    })
}

/// Finds the only session whose id begins with the prefix.
fn find(cx: &MethodCx<'_>, prefix: String) -> MethodAnswer {
    let server = cx.server.clone();
    large(async move {
        let sessions = newest_sessions(&**server.system().log()).await;
        let sessions = sessions.map_err(|error| failed(&error))?.into_iter();
        let mut found = sessions.filter(|session| {
            let id = session.id.as_str();
            !prefix.is_empty() && id.starts_with(&prefix) && !id.contains('/')
        });
        let mut answer = Map::new();
        if let (Some(session), None) = (found.next(), found.next()) {
            answer.insert("sessionId".to_owned(), json!(session.id));
        }
        Ok(Value::Object(answer))
    })
}

fn close(cx: &MethodCx<'_>, id: &SessionId) -> MethodAnswer {
    let cause = Cause::new(CauseKind::User).by("copilot").detail("closed");
    let closing = cx.server.close_session_if(id, |_| true, cause);
    later(async move {
        let receipt = match closing {
            Some(closing) => Some(whole(Some(closing)).await?),
            None => None,
        };
        Ok(json!({ "receipt": receipt }))
    })
}

/// `sessions.open`: finds the last session of a working directory, also without a `kind`. All other kinds have methods with
/// the parameters of the SDKs.
pub(super) fn open(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: OpenKindParams = read(params)?;
    if let Some(kind) = params.kind.filter(|kind| kind != "resumeLast") {
        return Err(RpcError::invalid_params(format!(
            "the kind {kind:?} is not offered: use `session.create` or `session.resume`"
        )));
    }
    let server = cx.server.clone();
    Ok(large(async move {
        let folder = params.context.and_then(|context| context.cwd);
        let infos = match &folder {
            Some(folder) => listed_infos(&server, Some(folder)).await?,
            None => Vec::new(),
        };
        match infos.first().and_then(|info| info.get("sessionId")) {
            None => Ok(json!({ "status": "not_found" })),
            Some(id) => Err(RpcError::invalid_params(format!(
                "resume the last session {id} with `session.resume`"
            ))),
        }
    }))
}
