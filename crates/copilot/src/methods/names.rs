//! `session.name.*` and `session.mode.*`.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::method::{MethodAnswer, MethodCx, failed, later, open_session, read, ready};
use crate::hosted::{ClientMode, NameChange};
use crate::server::LifecycleKind;

/// Maximum length of a name in characters. Programs show the name in one line.
const NAME_LEN_MAX: usize = 200;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NameParams {
    session_id: String,
    name: Option<String>,
    summary: Option<String>,
    mode: Option<ClientMode>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: NameParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let server = cx.server.clone();
    match method {
        "session.name.get" => ready(json!({ "name": session.state.name() })),
        "session.name.set" | "session.name.setAuto" => {
            let is_by_user = method == "session.name.set";
            let given = if is_by_user {
                params.name
            } else {
                params.summary
            };
            let name: String = given
                .unwrap_or_default()
                .trim()
                .chars()
                .take(NAME_LEN_MAX)
                .collect();
            if name.is_empty() {
                return Err(RpcError::invalid_params("the name is empty"));
            }
            Ok(later(async move {
                let change = session.state.set_name(&name, is_by_user).await;
                let is_applied = change.map_err(|error| failed(&error))? == NameChange::Applied;
                if is_applied {
                    session.note("session.title_changed", json!({ "title": name }));
                    server.send_lifecycle(LifecycleKind::Updated, session.id());
                }
                Ok(if is_by_user {
                    json!({})
                } else {
                    json!({ "applied": is_applied })
                })
            }))
        }
        "session.mode.get" => ready(json!(session.state.mode())),
        "session.mode.set" => {
            let mode = params.mode;
            let mode = mode.ok_or_else(|| RpcError::invalid_params("`mode` is missing"))?;
            Ok(later(async move {
                let before = session.state.set_mode(mode).await;
                let before = before.map_err(|error| failed(&error))?;
                if before != mode {
                    let data = json!({ "newMode": mode, "previousMode": before });
                    session.note("session.mode_changed", data);
                    server.send_lifecycle(LifecycleKind::Updated, session.id());
                }
                Ok(json!({ "status": "applied", "modelChanged": false }))
            }))
        }
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}
