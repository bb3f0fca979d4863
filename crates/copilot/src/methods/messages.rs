//! Messages of clients, and the wait for the answer to a message.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use allstop_agent::TurnError;
use allstop_core::receipt::ItemKind;
use allstop_core::{Image, Images, StopReason, TraceContext, error_chain};
use allstop_jsonrpc::RpcError;
use allstop_model::RequestHeaders;
use allstop_scope::WorkSpec;
use allstop_session::{
    FollowUp, MessageHandle, MessageOutcome, MessageRefused, NewMessage, SendError, Subscription,
};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};

use super::method::{MethodAnswer, MethodCx, MethodResult, later, open_session, read};
use crate::event::CopilotEvent;
use crate::hosted::HostedSession;
use crate::server::LifecycleKind;
use crate::translate::{HostEvent, PersistedEvent};

/// Maximum wait until the events of a turn are sent. These events precede the answer to `session.sendAndWait`.
const EVENTS_SENT_MAX: Duration = Duration::from_secs(1);

/// Maximum number of attachments that a prompt names. The model does not receive further attachments, and the clients
/// receive a warning.
const ATTACHMENTS_MAX: usize = 64;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SendParams {
    session_id: String,
    prompt: String,
    attachments: Option<Vec<Value>>,
    agent_mode: Option<String>,
    mode: Option<String>,
    traceparent: Option<String>,
    tracestate: Option<String>,
    response_format: Option<Value>,
    /// Further headers of the requests to the model.
    request_headers: Option<BTreeMap<String, String>>,
    /// Extension of `session.sendAndWait`: the maximum wait. After this time the wait ends, and nothing is stopped.
    timeout_ms: Option<u64>,
    /// Extension of `session.sendAndWait`: the maximum wait without an event of the session.
    inactivity_ms: Option<u64>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// An attachment of a message, as far as the model can receive it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachmentParams {
    #[serde(rename = "type")]
    kind: Option<String>,
    path: Option<String>,
    file_path: Option<String>,
    display_name: Option<String>,
    text: Option<String>,
    /// Content of a blob, in base64.
    data: Option<String>,
    mime_type: Option<String>,
}

impl AttachmentParams {
    fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or("file")
    }

    fn name(&self) -> &str {
        let path = self.path.as_ref().or(self.file_path.as_ref());
        let named = path.or(self.display_name.as_ref());
        named.map_or("unnamed", String::as_str)
    }

    /// Text for the model, from a selection or a blob.
    fn text(&self) -> Option<Cow<'_, str>> {
        if let Some(text) = &self.text {
            return Some(text.into());
        }
        let mime = self.mime_type.as_deref().unwrap_or_default();
        let is_text = mime.starts_with("text/") || mime == "application/json";
        let data = self.data.as_ref().filter(|_| is_text)?;
        let bytes = BASE64_STANDARD.decode(data).ok()?;
        String::from_utf8(bytes).ok().map(Cow::Owned)
    }

    /// Image of a blob.
    fn image(&self) -> Option<Image> {
        let is_image = self.mime_type.as_ref()?.starts_with("image/");
        let data = self.data.as_ref().filter(|_| is_image)?;
        Image::from_base64(data).ok()
    }

    /// True if the model needs only the name of the attachment, because it can read the content itself.
    fn is_named(&self) -> bool {
        matches!(self.kind(), "file" | "directory" | "selection")
    }
}

/// Returns the prompt with its attachments, and a warning for each part of the attachments that the model does not
/// receive.
fn text_of(prompt: &str, attachments: &[AttachmentParams]) -> (Arc<str>, Vec<Arc<str>>) {
    let (mut text, mut missing) = (prompt.to_owned(), Vec::new());
    let (attachments, more) = attachments.split_at(attachments.len().min(ATTACHMENTS_MAX));
    for attachment in attachments {
        let (kind, name) = (attachment.kind(), attachment.name());
        for part in ["\n\nAttached ", kind, ": ", name] {
            text.push_str(part);
        }
        if let Some(content) = attachment.text() {
            text.push('\n');
            text += &content;
        } else if attachment.image().is_some() {
            text.push_str(" (image)");
        } else if !attachment.is_named() {
            text.push_str(" (its content cannot be shown)");
            let mime = attachment.mime_type.as_deref();
            let mime = mime.map_or(String::new(), |mime| format!(" of type {mime}"));
            let message = format!("the model does not get the attached {kind}{mime}: {name}");
            missing.push(message.into());
        }
    }
    if !more.is_empty() {
        let message = format!(
            "attachments not sent to the model: {}; the limit is {ATTACHMENTS_MAX}",
            more.len()
        );
        missing.push(message.into());
    }
    (text.into(), missing)
}

fn attachments_of(given: &[Value]) -> Result<Vec<AttachmentParams>, RpcError> {
    let parsed = given.iter().enumerate().map(|(index, value)| {
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            let error = error.into_inner();
            RpcError::invalid_params(format!("`attachments[{index}].{path}`: {error}"))
        })
    });
    parsed.collect()
}

/// Returns the attachment for the event of the message. The SDKs cannot read an event with an attachment that lacks a
/// field: a missing name is derived from the path, and a selection without a range is left out.
fn echoed(attachment: &Value) -> Option<Value> {
    let mut attachment = attachment.clone();
    if attachment["type"] == "selection" && !attachment["selection"].is_object() {
        return None;
    }
    let path = attachment["path"]
        .as_str()
        .or(attachment["filePath"].as_str());
    let name = path
        .and_then(|path| path.rsplit('/').next())
        .map(str::to_owned);
    if let (Some(name), Value::Object(fields)) = (name, &mut attachment) {
        fields.entry("displayName").or_insert(name.into());
    }
    Some(attachment)
}

/// Returns the fields of the event `user.message` that repeat the parameters.
fn facts_of(params: &SendParams, attachments: &[Value]) -> Map<String, Value> {
    let mut facts = Map::new();
    if !attachments.is_empty() {
        let echoed: Vec<_> = attachments.iter().filter_map(echoed).collect();
        facts.insert("attachments".to_owned(), echoed.into());
    }
    if let Some(mode) = &params.agent_mode {
        facts.insert("agentMode".to_owned(), mode.as_str().into());
    }
    facts
}

fn sent(session: &HostedSession, params: &SendParams) -> Result<MessageHandle, RpcError> {
    let format = params.response_format.as_ref();
    if format.is_some_and(|format| !format.is_null()) {
        let message = "`responseFormat` is not supported";
        return Err(RpcError::invalid_params(message));
    }
    let given = params.attachments.as_deref().unwrap_or_default();
    let attachments = attachments_of(given)?;
    let (text, mut missing) = text_of(&params.prompt, &attachments);
    let images = attachments.iter().take(ATTACHMENTS_MAX);
    let images = images.filter_map(AttachmentParams::image).collect();
    let (images, left_out) = Images::first_within_limits(images);
    if left_out > 0 {
        missing.push(format!("images not sent to the model: {left_out}").into());
    }
    let id = session.new_message_id();
    session
        .facts
        .add_message(id.clone(), facts_of(params, given));
    let headers = params.request_headers.iter().flatten();
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
    let headers = RequestHeaders::new(headers);
    let headers = headers.map_err(|error| RpcError::invalid_params(error.to_string()))?;
    let mut message = NewMessage::from(session.secrets.redact_text(text))
        .id(id)
        .images(images)
        .headers(headers);
    let trace = params.traceparent.as_deref().and_then(TraceContext::new);
    message.trace =
        trace.map(|trace| trace.with_tracestate(params.tracestate.as_deref().unwrap_or_default()));
    if params.mode.as_deref() == Some("immediate") {
        message = message.policy(FollowUp::Steer);
    }
    session.send_ephemeral("pending_messages.modified", json!({}));
    let sent = session.session.send(message);
    for message in missing {
        session.send_host_event(HostEvent::NotOffered { message });
    }
    sent.map_err(|error| match error {
        // The message may be sent again later.
        SendError::Refused(MessageRefused::Full(_) | MessageRefused::Busy) => {
            RpcError::overloaded(error.to_string())
        }
        SendError::Refused(MessageRefused::Closed) | SendError::Empty | SendError::Stopped(_) => {
            RpcError::invalid_params(error.to_string())
        }
    })
}

pub(super) fn send(cx: &MethodCx<'_>, params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let params: SendParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let answer = begin_turn(cx, session, &params)?;
    Ok(MethodAnswer::Now(Ok(answer)))
}

/// Sends a message that has only a text.
pub(super) fn send_text(
    cx: &MethodCx<'_>,
    session: Arc<HostedSession>,
    prompt: String,
) -> MethodResult {
    let params = SendParams {
        prompt,
        ..SendParams::default()
    };
    begin_turn(cx, session, &params)
}

fn begin_turn(cx: &MethodCx<'_>, session: Arc<HostedSession>, params: &SendParams) -> MethodResult {
    let message = sent(&session, params)?;
    session.warn_of_ignored("session.send", &params.others);
    cx.server
        .send_lifecycle(LifecycleKind::Updated, session.id());
    let answer = json!({ "messageId": message.id });
    report_failure(cx, session, message);
    Ok(answer)
}

/// Reports a message that got no turn. For example, the session was handed over, and another process has it open.
fn report_failure(cx: &MethodCx<'_>, session: Arc<HostedSession>, message: MessageHandle) {
    let spec = WorkSpec::new(ItemKind::Future, "outcome of a message");
    let spawned = cx.server.connections().spawn(spec, move |work| async move {
        let outcome = tokio::select! {
            biased;
            _stopped = work.stopped_at("outcome of a message") => return,
            outcome = message.outcome() => outcome,
        };
        if let (None, Some(error)) = (outcome.turn, &outcome.error) {
            let data = json!({
                "errorType": "query",
                "message": error_chain(error),
                "originatingMessageId": message.id,
            });
            session.send_ephemeral("session.error", data);
            session.send_ephemeral("session.idle", json!({}));
        }
    });
    // If the server is being stopped, the session ends.
    drop(spawned);
}

/// Sends a message. Waits until the message has its answer, and no background work that the session waits for runs.
pub(super) fn send_and_wait(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: SendParams = read(params)?;
    let session = open_session(cx, &params.session_id)?;
    let message = sent(&session, &params)?;
    session.warn_of_ignored("session.sendAndWait", &params.others);
    cx.server
        .send_lifecycle(LifecycleKind::Updated, session.id());
    let limit = params.timeout_ms.map(Duration::from_millis);
    let silence = params.inactivity_ms.map(Duration::from_millis);
    let events = session.session.subscribe(None);
    let feed = session.feed_of(cx.client.id);
    Ok(later(async move {
        let waited = async {
            let outcome = message.outcome().await;
            session.session.background_idle().await;
            outcome
        };
        let outcome = tokio::select! {
            biased;
            outcome = waited => Ok(outcome),
            () = after(limit) => Err("timeoutMs"),
            () = silent(events, silence) => Err("inactivityMs"),
        };
        match outcome {
            Ok(outcome) => {
                if let (Some(feed), Some(turn)) = (feed, outcome.turn) {
                    let mut turns = feed.turns.subscribe();
                    let sent = async { drop(turns.wait_for(|ended| *ended >= turn).await) };
                    let _sent_or_late = timeout(EVENTS_SENT_MAX, sent).await;
                }
                answer_of(&session, &message, &outcome)
            }
            Err(limit) => Ok(timed_out(&session, &message, limit)),
        }
    }))
}

/// Returns the event with the answer of the model, if the turn was completed.
fn response_of(
    session: &HostedSession,
    message: &MessageHandle,
    outcome: &MessageOutcome,
) -> Option<CopilotEvent> {
    outcome.turn.filter(|_| outcome.is_completed()).map(|turn| {
        let place = (turn, outcome.steps);
        let text = (&*outcome.output, &[][..]);
        let event = PersistedEvent::answer(session.id(), place, text, Some(&message.id));
        event.at(session.id(), SystemTime::now().into(), None)
    })
}

fn answer_of(
    session: &HostedSession,
    message: &MessageHandle,
    outcome: &MessageOutcome,
) -> MethodResult {
    let response = response_of(session, message, outcome);
    let word = match outcome.stop_reason {
        StopReason::Completed => "completed",
        StopReason::Cancelled | StopReason::Shutdown => "aborted",
        _ => {
            let error = outcome
                .error
                .as_ref()
                .map(|TurnError { message, .. }| message.clone());
            let cause = outcome.cause.as_ref().map(ToString::to_string);
            let text = error
                .or(cause)
                .unwrap_or_else(|| "the turn failed".to_owned());
            let data = json!({
                "messageId": message.id,
                "outcome": "failed",
                "stopReason": outcome.stop_reason,
                "receipt": outcome.receipt,
            });
            return Err(RpcError {
                data: Some(data),
                ..RpcError::internal_error(text)
            });
        }
    };
    Ok(json!({
        "messageId": message.id,
        "response": response,
        "aborted": word == "aborted",
        "outcome": word,
        "stopReason": outcome.stop_reason,
        "receipt": outcome.receipt,
    }))
}

/// Completes after this time, or never if `limit` is `None`.
async fn after(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    }
}

/// Completes when the session has had no event for this time, or never if `limit` is `None`.
async fn silent(mut events: Subscription, limit: Option<Duration>) {
    let Some(limit) = limit else {
        return pending().await;
    };
    loop {
        match timeout(limit, events.next()).await {
            Ok(Ok(Some(_event))) => {}
            Err(_elapsed) => return,
            // The session is closed, or its events cannot be read. The wait for the answer then reports the end.
            Ok(Ok(None) | Err(_)) => return pending().await,
        }
    }
}

fn timed_out(session: &HostedSession, message: &MessageHandle, limit: &str) -> Value {
    let running = session.session.background();
    let running = running.iter().filter(|work| work.is_running());
    let running: Vec<_> = running
        .map(|work| json!({ "id": work.id, "name": work.name }))
        .collect();
    let outcome = message.try_outcome();
    let response = outcome
        .as_ref()
        .and_then(|outcome| response_of(session, message, outcome));
    json!({
        "messageId": message.id,
        "response": response,
        "aborted": false,
        "outcome": "timed_out",
        "limit": limit,
        "turnRuns": outcome.is_none(),
        "background": running,
    })
}
