//! `session.create` and `session.resume`, and the change of a session's fixed settings.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, CauseKind, SessionId};
use allstop_host::finish_work;
use allstop_jsonrpc::RpcError;
use allstop_log::Version;
use allstop_runtime::StartErrorKind;
use allstop_session::{ReserveResult, Session, SessionReservation, SessionStop, StopTarget};
use futures::future::join_all;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ids::usable_id;
use super::method::{MethodAnswer, MethodCx, later, read, whole};
use super::open_checks::{check_folder, check_skill_folders};
use super::open_params::{OpenParams, choice_of};
use super::{handover, instructions};
use crate::connection::Client;
use crate::hosted::{AttachedClient, HostedSession, OpenMode, SessionChoice, now};
use crate::refusal::refusal;
use crate::server::{CopilotServer, LifecycleKind};

/// Maximum wait of a client that does not continue the pending work, for the end of the other connections. A restarted program
/// closes its old connection just before the new one, and a busy machine may notice the end after the resume.
const ENDED_CLIENTS_MAX: Duration = Duration::from_millis(100);

pub(super) fn create(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: OpenParams = read(params)?;
    let id = params.session_id.clone();
    let id = id.unwrap_or_else(|| ulid::Ulid::generate().to_string());
    begin(cx, id, OpenMode::Create, params)
}

pub(super) fn resume(
    cx: &MethodCx<'_>,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: OpenParams = read(params)?;
    let id = params.session_id.clone();
    let id = id.ok_or_else(|| RpcError::invalid_params("`sessionId` is missing"))?;
    begin(cx, id, OpenMode::Resume, params)
}

fn begin(
    cx: &MethodCx<'_>,
    id: String,
    mode: OpenMode,
    params: OpenParams,
) -> Result<MethodAnswer, RpcError> {
    let id = usable_id(id)?;
    let choice = Arc::new(choice_of(cx, &id, params)?);
    let (server, client) = (cx.server.clone(), Arc::clone(cx.client));
    let (of_client, chosen) = (Arc::clone(&client), Arc::clone(&choice));
    let first_join =
        move |session: &Session| match clients_to_await(session, mode, &of_client, &chosen) {
            Some(others) => Ok(Joined::Shares(others)),
            None => join(session, mode, &of_client, &chosen),
        };
    let found = server.registry().reserve(&id, first_join);
    Ok(later(async move {
        let mut found = found.await;
        if let ReserveResult::Open(Ok(Joined::Shares(others))) = found {
            let ended = join_all(others.iter().map(AttachedClient::detached));
            let _ended_or_shared = timeout(ENDED_CLIENTS_MAX, ended).await;
            let (client, choice) = (Arc::clone(&client), Arc::clone(&choice));
            let join = move |session: &Session| join(session, mode, &client, &choice);
            found = server.registry().reserve(&id, join).await;
        }
        if let ReserveResult::Open(Ok(Joined::Interrupts(stop))) = found {
            drop(stop.receipt().await);
            // The session may have been closed meanwhile.
            let (client, choice) = (Arc::clone(&client), Arc::clone(&choice));
            let attach = move |session: &Session| attach(session, &client, &choice, false);
            found = server.registry().reserve(&id, attach).await;
        }
        let begun = match found {
            ReserveResult::Reserved(reservation) => Begun::New(reservation),
            ReserveResult::Open(joined) => match joined? {
                Joined::Attached | Joined::Interrupts(_) | Joined::Shares(_) => {
                    return Ok(opened_answer(&server, &id));
                }
                Joined::Differs(setting) => Begun::Reopen(setting),
            },
        };
        check_folder(choice.folder.as_deref()).await?;
        check_skill_folders(&choice.parts.skill_folders).await?;
        let opening = opened(server.clone(), client, choice, mode, id.clone(), begun);
        let name = format!("opening of session {id}");
        whole(finish_work(server.connections(), name, opening)).await??;
        Ok(opened_answer(&server, &id))
    }))
}

/// Returns the answer for a client that has opened or joined a session.
fn opened_answer(server: &CopilotServer, id: &SessionId) -> Value {
    let mut answer = json!({ "sessionId": id });
    if let Some(hosted) = server.open_session(id) {
        answer["workspacePath"] = json!(hosted.files.path_of(""));
        answer["openCanvases"] = json!(hosted.open_canvases());
        answer["capabilities"] = json!({ "ui": { "elicitation": hosted.has_forms() } });
    }
    answer
}

/// State of a session before it is opened.
enum Begun {
    New(SessionReservation),
    /// The session is open with another value of this setting.
    Reopen(&'static str),
}

/// Result of an attempt to join an open session.
enum Joined {
    /// The client is attached.
    Attached,
    /// The stop ends the turn that ran without a client, because the client does not continue it. The client is attached
    /// after the stop, so it gets no request of the turn.
    Interrupts(SessionStop),
    /// These clients are attached to the session and its work. Their connections may have just ended.
    Shares(Vec<AttachedClient>),
    /// The session has another value of this setting.
    Differs(&'static str),
}

/// Returns the other clients of a busy session, if this client does not continue the work of the session. `None` if the
/// client need not wait for their end.
fn clients_to_await(
    session: &Session,
    mode: OpenMode,
    client: &Client,
    choice: &SessionChoice,
) -> Option<Vec<AttachedClient>> {
    if mode == OpenMode::Create || choice.resume.continues_work != Some(false) {
        return None;
    }
    let others = session.part::<HostedSession>()?.attached_clients();
    let is_attached = others.iter().any(|other| other.client.id == client.id);
    (session.is_busy() && !others.is_empty() && !is_attached).then_some(others)
}

/// Adds a client to an open session, or begins to end the work that the client does not continue.
fn join(
    session: &Session,
    mode: OpenMode,
    client: &Arc<Client>,
    choice: &SessionChoice,
) -> Result<Joined, RpcError> {
    let id = session.id();
    if mode == OpenMode::Create {
        return Err(RpcError::invalid_params(format!(
            "session {id} exists: resume it, or choose another id"
        )));
    }
    let hosted = hosted_of(session)?;
    if let Some(setting) = hosted.difference(choice) {
        return Ok(Joined::Differs(setting));
    }
    // A client that does not continue the pending work of a session without a client gets the session without it.
    if choice.resume.continues_work == Some(false) && hosted.is_alone() {
        let cause = Cause::new(CauseKind::Disconnect).detail("resumed without the pending work");
        return Ok(Joined::Interrupts(session.stop(&StopTarget::Turn, cause)));
    }
    attach(session, client, choice, session.is_busy())
}

fn hosted_of(session: &Session) -> Result<Arc<HostedSession>, RpcError> {
    let id = session.id();
    session.part::<HostedSession>().ok_or_else(|| {
        RpcError::invalid_params(format!(
            "session {id} is open, but not available to clients"
        ))
    })
}

/// Adds a client to an open session with the settings that it requests. `was_active` is false if the client has ended the
/// work of the session.
fn attach(
    session: &Session,
    client: &Arc<Client>,
    choice: &SessionChoice,
    was_active: bool,
) -> Result<Joined, RpcError> {
    let hosted = hosted_of(session)?;
    // The session may have been opened with other settings since the client was compared with it.
    if let Some(setting) = hosted.difference(choice) {
        return Ok(Joined::Differs(setting));
    }
    if let Some(declared) = choice.declared.clone() {
        hosted.declare(declared);
    }
    hosted.attach(client, choice, None);
    note_resume(&hosted, choice, was_active);
    Ok(Joined::Attached)
}

/// Sends the event of a resume.
fn note_resume(session: &HostedSession, choice: &SessionChoice, was_active: bool) {
    if choice.resume.is_silent {
        return;
    }
    let resumed = json!({
        "resumeTime": now(),
        // The number of turns. The events would have to be counted in the whole log, and a resume must not wait for it.
        "eventCount": session.session.last_turn().0,
        "selectedModel": session.model_name(),
        "continuePendingWork": choice.resume.continues_work.unwrap_or(false),
        "sessionWasActive": was_active,
    });
    session.note("session.resume", resumed);
}

/// A session that was closed to open it with other settings.
struct ClosedSession {
    reservation: SessionReservation,
    hosted: Arc<HostedSession>,
    clients: Vec<AttachedClient>,
    choice: SessionChoice,
}

/// Closes an idle session to open it with another value of a setting, and reserves its id.
async fn close_to_reopen(
    server: &CopilotServer,
    id: &SessionId,
    setting: &str,
) -> Result<ClosedSession, RpcError> {
    let works = || {
        RpcError::invalid_params(format!(
            "session {id} is open with another `{setting}`, which does not change while the session works: omit \
             `{setting}`, or wait for the end of its work"
        ))
    };
    let hosted = server.open_session(id).ok_or_else(works)?;
    let (clients, choice) = (hosted.attached_clients(), hosted.choice());
    let is_idle = |hosted: &HostedSession| {
        let works = hosted.session.background();
        !hosted.session.is_busy() && !works.iter().any(|work| work.is_running())
    };
    let cause = Cause::new(CauseKind::User)
        .by("copilot")
        .detail("opened with other settings");
    let closing = server.close_session_if(id, is_idle, cause);
    whole(Some(closing.ok_or_else(works)?)).await?;
    match server.registry().reserve(id, |_| ()).await {
        ReserveResult::Reserved(reservation) => Ok(ClosedSession {
            reservation,
            hosted,
            clients,
            choice,
        }),
        ReserveResult::Open(()) => Err(RpcError::overloaded(format!(
            "another client has just opened session {id}"
        ))),
    }
}

/// Opens an idle session again with a changed choice, for all its clients. A session has fixed settings, such as the model:
/// the log of the session is the only state that outlasts the change.
///
/// # Cancel safety
/// Dropping the future does not cancel the change.
pub(super) async fn reopen(
    server: CopilotServer,
    id: SessionId,
    setting: &'static str,
    change: impl FnOnce(&mut SessionChoice) -> Result<(), RpcError> + Send + 'static,
) -> Result<Arc<HostedSession>, RpcError> {
    let name = format!("other settings of session {id}");
    let scope = server.connections().clone();
    let changing = async move {
        // A refused change leaves the session open.
        let hosted = server.open_session(&id);
        let mut choice = hosted
            .map(|hosted| hosted.choice())
            .ok_or_else(|| RpcError::invalid_params(format!("Session not found: {id}")))?;
        change(&mut choice)?;
        let closed = close_to_reopen(&server, &id, setting).await?;
        let before = Some(&*closed.hosted);
        let mut session =
            HostedSession::open(&server, id.clone(), OpenMode::Resume, &choice, before).await;
        let failed = session.as_ref().err().map(refusal);
        if failed.is_some() {
            // The session stays open with its former settings.
            let former = &closed.choice;
            session =
                HostedSession::open(&server, id.clone(), OpenMode::Resume, former, before).await;
            choice = former.clone();
        }
        let session = session.map_err(|error| refusal(&error))?;
        for client in &closed.clients {
            session.attach_again(client, &choice);
        }
        session.session.set_part(Arc::clone(&session));
        drop(closed.reservation);
        failed.map_or(Ok(session), Err)
    };
    whole(finish_work(&scope, name, changing)).await?
}

/// Opens a session for its first client.
async fn opened(
    server: CopilotServer,
    client: Arc<Client>,
    choice: Arc<SessionChoice>,
    mode: OpenMode,
    id: SessionId,
    begun: Begun,
) -> Result<(), RpcError> {
    let (reservation, others, before, mut choice) = match begun {
        Begun::New(reservation) => (reservation, Vec::new(), None, SessionChoice::clone(&choice)),
        Begun::Reopen(setting) => {
            let closed = close_to_reopen(&server, &id, setting).await?;
            let choice = choice.over(closed.choice);
            (
                closed.reservation,
                closed.clients,
                Some(closed.hosted),
                choice,
            )
        }
    };
    server.settings().read().await?.add_to(&mut choice)?;
    instructions::add(&mut choice).await;
    let before = before.as_deref();
    let mut session = HostedSession::open(&server, id.clone(), mode, &choice, before).await;
    if let Err(error) = &session
        && error.kind == StartErrorKind::SessionInUse
        && handover::release_elsewhere(&server, &id).await?
    {
        session = HostedSession::open(&server, id.clone(), mode, &choice, before).await;
    }
    let session = session.map_err(|error| refusal(&error))?;
    let from = (mode == OpenMode::Create).then_some(Version(1));
    // The opened session may have further warnings.
    let choice = session.choice();
    session.attach(&client, &choice, from);
    for other in others.iter().filter(|other| other.client.id != client.id) {
        session.attach_again(other, &choice);
    }
    session.session.set_part(Arc::clone(&session));
    drop(reservation);
    match mode {
        OpenMode::Create => server.send_lifecycle(LifecycleKind::Created, &id),
        OpenMode::Resume => note_resume(&session, &choice, false),
    }
    // A client may have disconnected before the session existed. The disconnect then did not detach it from this
    // session.
    if client.output.is_closed() && session.detach(client.id) {
        session.begin_unattended(&server);
    }
    Ok(())
}
