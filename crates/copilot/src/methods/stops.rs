//! Methods that stop work. Each stop returns a receipt, which lists the state of each part of the stopped work.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemState;
use allstop_core::record::{Attachment, BackgroundKind};
use allstop_core::{CallId, Cause, CauseKind, Receipt};
use allstop_jsonrpc::RpcError;
use allstop_session::{Session, SessionStop, StopTarget};
use futures::future::{BoxFuture, join_all};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::method::{MethodAnswer, MethodCx, MethodResult, later, open_session, read, whole};
use crate::connection::ClientId;
use crate::hosted::{FeedHandle, HostedSession};
use crate::translate::HostEvent;

/// Maximum wait until the event `assistant.idle` is sent. This event precedes the answer to the stop.
const IDLE_SENT_MAX: Duration = Duration::from_secs(1);

/// Parameters of the official stops.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StopParams {
    session_id: String,
    reason: Option<String>,
}

/// Parameters of `allstop.stop`. A misspelt parameter is refused: the stop would have another extent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExtentParams {
    session_id: String,
    extent: Option<String>,
    reason: Option<String>,
}

/// Parameters of `allstop.cancelToolCall`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CallStopParams {
    session_id: String,
    tool_call_id: Option<String>,
    reason: Option<String>,
}

/// Parameters of `allstop.preview`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PreviewParams {
    session_id: String,
    extent: Option<String>,
    tool_call_id: Option<String>,
}

/// Returns the stop target for an extent of the protocol; the running turn if the extent is missing.
fn target_of(extent: Option<&str>) -> Result<StopTarget, RpcError> {
    Ok(match extent {
        None | Some("turn") => StopTarget::Turn,
        Some("turn_and_background") => StopTarget::TurnAndBackground,
        Some("session") => StopTarget::Session,
        Some(other) => {
            return Err(RpcError::invalid_params(format!(
                "the `extent` {other:?} is unknown: use \"turn\", \"turn_and_background\" or \"session\""
            )));
        }
    })
}

fn cause_of(reason: Option<&str>) -> Cause {
    let cause = Cause::new(CauseKind::User).by("copilot");
    match reason {
        Some(reason) => cause.detail(reason.to_owned()),
        None => cause,
    }
}

pub(super) fn runs_attached_background(session: &Session) -> bool {
    let works = session.background();
    works
        .iter()
        .any(|work| work.is_running() && work.attachment() == Attachment::Attached)
}

/// True unless the receipt reports that work of the extent continues.
fn is_success(receipt: &Receipt) -> bool {
    let runs = |state: &ItemState| {
        matches!(
            state,
            ItemState::StillRunning { .. } | ItemState::Refused { .. }
        )
    };
    receipt.quiet() || !receipt.items().iter().any(|item| runs(&item.state))
}

/// Abort whose answer must precede the event `session.idle`. While the abort is in progress, it counts in `aborts` of
/// the feed. The feed delays the event until this number is 0.
struct AbortInFlight(Option<FeedHandle>);

impl AbortInFlight {
    fn new(feed: Option<FeedHandle>) -> Self {
        if let Some(feed) = &feed {
            feed.aborts.send_modify(|aborts| *aborts += 1);
        }
        Self(feed)
    }
}

impl Drop for AbortInFlight {
    fn drop(&mut self) {
        if let Some(feed) = &self.0 {
            feed.aborts.send_modify(|aborts| *aborts -= 1);
        }
    }
}

/// Stops a target, after the starts of all earlier requests. The answer with the receipt is sent after the events of the
/// stop.
fn stopping(
    cx: &MethodCx<'_>,
    session: Arc<HostedSession>,
    target: impl FnOnce(&Session) -> StopTarget + Send + 'static,
    cause: Cause,
    answer: impl FnOnce(&Receipt) -> Value + Send + 'static,
) -> MethodAnswer {
    let client = cx.client.id;
    let starts = session.starts.in_progress();
    let begin = move || {
        let target = target(&session.session);
        begin_stop(client, &session, &target, cause, answer)
    };
    match starts {
        None => MethodAnswer::Later(begin()),
        Some(starts) => later(async move {
            starts.await;
            begin().await
        }),
    }
}

fn begin_stop(
    client: ClientId,
    session: &HostedSession,
    target: &StopTarget,
    cause: Cause,
    answer: impl FnOnce(&Receipt) -> Value + Send + 'static,
) -> BoxFuture<'static, MethodResult> {
    let feed = session.feed_of(client);
    let in_flight = AbortInFlight::new(feed.clone());
    let stops_turn = session.session.has_turn() && !matches!(target, StopTarget::Call(_));
    let mut idles = feed.map(|feed| feed.idles.subscribe());
    if let Some(idles) = &mut idles {
        idles.mark_unchanged();
    }
    if stops_turn {
        session.send_host_event(HostEvent::AbortRequested {
            turn: session.session.last_turn(),
            reason: "user_initiated".into(),
        });
    }
    let stop = session.session.stop(target, cause);
    Box::pin(async move {
        let receipt = stop.receipt().await;
        if stops_turn && let Some(mut idles) = idles {
            let _sent_or_late = timeout(IDLE_SENT_MAX, idles.changed()).await;
        }
        let answer = answer(&receipt);
        // From here on, `session.idle` no longer waits for this abort. The answer is queued a moment later. It still
        // precedes `session.idle` of a stopped turn, because the feed delays this event by `NEXT_MESSAGE_MAX`.
        drop(in_flight);
        Ok(answer)
    })
}

/// `session.abort`: stops the running turn. If no turn runs, stops the background work that the session waits for.
pub(super) fn abort(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: StopParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let target = |session: &Session| {
        if !session.is_busy() && runs_attached_background(session) {
            StopTarget::TurnAndBackground
        } else {
            StopTarget::Turn
        }
    };
    let cause = cause_of(params.reason.as_deref());
    Ok(stopping(
        cx,
        session,
        target,
        cause,
        |receipt| json!({ "success": is_success(receipt), "receipt": receipt }),
    ))
}

/// `session.interruptMainTurn`: stops only the running turn.
pub(super) fn interrupt(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: StopParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let cause = cause_of(params.reason.as_deref());
    Ok(stopping(
        cx,
        session,
        |_| StopTarget::Turn,
        cause,
        |receipt| json!({ "interrupted": receipt.outcome().is_none(), "receipt": receipt }),
    ))
}

/// `session.cancelAllBackgroundAgents`: stops all background sub-agents. Returns their number.
pub(super) fn cancel_agents(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: StopParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let works = session.session.background();
    let agents = works
        .iter()
        .filter(|work| work.is_running() && work.kind() == BackgroundKind::Agent);
    let stops: Vec<_> = agents
        .map(|work| {
            let target = StopTarget::Background(work.id.clone());
            session
                .session
                .stop(&target, cause_of(params.reason.as_deref()))
        })
        .collect();
    Ok(later(async move {
        let receipts = join_all(stops.iter().map(SessionStop::receipt)).await;
        let stopped = receipts
            .iter()
            .filter(|receipt| receipt.outcome().is_none());
        Ok(Value::from(stopped.count()))
    }))
}

/// `allstop.cancelToolCall`: stops one call, while other calls and the turn continue. Returns true if the call was in
/// progress. A second cancel of the call returns false.
pub(super) fn cancel_call(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: CallStopParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let id = params.tool_call_id.as_deref();
    let id = CallId::new(id.ok_or_else(|| RpcError::invalid_params("`toolCallId` is missing"))?);
    let is_running = session.session.running_calls().contains(&id);
    let is_first = is_running && session.note_cancelled(&id);
    let stop = session.session.stop(
        &StopTarget::Call(id.clone()),
        cause_of(params.reason.as_deref()),
    );
    Ok(later(async move {
        let receipt = stop.receipt().await;
        let cancelled = is_first && receipt.outcome().is_none();
        Ok(json!({ "cancelled": cancelled, "receipt": receipt }))
    }))
}

/// `allstop.stop`: stops any extent.
pub(super) fn stop(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: ExtentParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let target = target_of(params.extent.as_deref())?;
    let cause = cause_of(params.reason.as_deref());
    if matches!(target, StopTarget::Session) {
        // After a stop of the whole session, the open session accepts no more messages. Therefore the session is closed
        // too. A client can resume the session later.
        let closing = cx.server.close_session_if(session.id(), |_| true, cause);
        return Ok(later(async move {
            let receipt = whole(closing).await?;
            Ok(json!({ "receipt": receipt }))
        }));
    }
    Ok(stopping(
        cx,
        session,
        move |_| target,
        cause,
        |receipt| json!({ "receipt": receipt }),
    ))
}

/// `allstop.preview`: lists the work that a stop would cover now. Stops nothing.
pub(super) fn preview(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: PreviewParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let target = match (params.tool_call_id, params.extent) {
        (Some(call), _) => StopTarget::Call(CallId::new(call)),
        (None, extent) => target_of(extent.as_deref())?,
    };
    let receipt = session.session.preview(&target);
    Ok(MethodAnswer::Now(Ok(json!({ "receipt": receipt }))))
}
