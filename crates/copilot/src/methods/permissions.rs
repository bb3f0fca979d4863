//! `session.permissions.*`: the mode in which permission questions of a session are answered.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx, SessionIdParams, later, open_session, read, ready};
use super::open::reopen;
use crate::translate::permission_request;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ModeParams {
    session_id: String,
    mode: Option<SessionPermissionMode>,
    enabled: Option<bool>,
}

/// Modes of the protocol that this server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SessionPermissionMode {
    /// Permission questions go to the clients.
    Manual,
    /// The server allows all calls without a question. The deny rules of the configuration still apply.
    AllowAll,
}

impl SessionPermissionMode {
    fn of(approves_all: bool) -> Self {
        if approves_all {
            Self::AllowAll
        } else {
            Self::Manual
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::AllowAll => "allow-all",
        }
    }
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    match method {
        "session.permissions.pendingRequests" => return pending(cx, params),
        "session.permissions.resetSessionApprovals" => return reset(cx, params),
        _ => {}
    }
    let missing = |name: &str| RpcError::invalid_params(format!("`{name}` is missing"));
    let chosen = |params: &ModeParams| match method {
        "session.permissions.getMode" => Ok(None),
        "session.permissions.setMode" => params.mode.map(Some).ok_or_else(|| missing("mode")),
        "session.permissions.setApproveAll" => {
            let enabled = params.enabled.ok_or_else(|| missing("enabled"))?;
            Ok(Some(SessionPermissionMode::of(enabled)))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    };
    let params: ModeParams = read(params)?;
    let chosen = chosen(&params)?;
    let session = open_session(cx, &params.session_id)?;
    if let Some(mode) = chosen {
        let before = session.set_approves_all(mode == SessionPermissionMode::AllowAll);
        let before = SessionPermissionMode::of(before);
        let data = json!({ "mode": mode.as_str(), "previousMode": before.as_str() });
        session.send_ephemeral("session.permissions_changed", data);
    }
    let mode = SessionPermissionMode::of(session.approves_all()).as_str();
    Ok(MethodAnswer::Now(Ok(
        json!({ "success": true, "mode": mode }),
    )))
}

/// Describes the open permission questions.
fn pending(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: SessionIdParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let questions = session.session.questions();
    let items = questions.iter().map(|question| {
        json!({ "requestId": question.id, "request": permission_request(&question.question) })
    });
    ready(json!({ "items": items.collect::<Vec<_>>() }))
}

/// Forgets the answers that allow further calls of the session.
fn reset(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: SessionIdParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let server = cx.server.clone();
    Ok(later(async move {
        // The answers last as long as the session is open.
        reopen(server, session.id().clone(), "permissions", |_| Ok(())).await?;
        Ok(json!({ "success": true }))
    }))
}
