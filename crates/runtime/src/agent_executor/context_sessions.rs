//! Sessions of contexts. A context groups the tasks of a client that belong to one conversation. Each context has one
//! session, which the tasks of the context share.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{ContextId, SessionId, error_chain};
use allstop_log::{Log, SessionError};
use allstop_scope::{Scope, WorkSpec};
use allstop_session::{
    MessageHandle, NewMessage, OpenError, ReserveResult, Session, SessionRegistry,
    SessionReservation, Sessions, Subscription,
};
use allstop_task::ExecutorError;
use tokio::time::sleep;

/// Maximum size of a context's id, in bytes. With its prefix, the id is the name of a folder.
const CONTEXT_ID_BYTES_MAX: usize = 128;

/// Pause before another attempt to open a session that another process has open.
const IN_USE_PAUSE: Duration = Duration::from_millis(100);

/// Prefix of the ids of sessions that belong to contexts. A client chooses the id of its context; without the prefix,
/// the client could choose the id of another user's session in this store.
const CONTEXT_SESSION_PREFIX: &str = "context-";

#[derive(Debug)]
pub(super) struct ContextSessions {
    sessions: Sessions,
    folder: Arc<str>,
    open_max: usize,
    /// True if other processes use the same sessions.
    is_shared: bool,
}

impl ContextSessions {
    pub(super) fn new(
        sessions: Sessions,
        folder: Arc<str>,
        open_max: usize,
        is_shared: bool,
    ) -> Self {
        Self {
            sessions,
            folder,
            open_max,
            is_shared,
        }
    }

    /// The log of the sessions.
    pub(super) fn log(&self) -> &dyn Log {
        &**self.sessions.log()
    }

    /// The open sessions.
    pub(super) fn registry(&self) -> &SessionRegistry {
        self.sessions.registry()
    }

    /// Scope of the sessions.
    pub(super) fn scope(&self) -> &Scope {
        self.sessions.scope()
    }

    /// Returns the session of a context. Creates a session for a new context.
    ///
    /// # Errors
    /// Returns an error if the context's id cannot be a session's id, or if the session cannot be opened.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call opens the session.
    pub(super) async fn session(&self, context: &ContextId) -> Result<Session, ExecutorError> {
        self.with_session(context, Session::clone).await
    }

    /// Subscribes to the session of a context, then sends a message to it.
    ///
    /// # Errors
    /// Returns the errors of [`ContextSessions::session`], and an error if the session refused the message.
    ///
    /// # Cancel safety
    /// Cancel safe: the message is sent in the last step, so a future that is dropped earlier has sent nothing.
    pub(super) async fn send(
        &self,
        context: &ContextId,
        message: NewMessage,
    ) -> Result<(Session, Subscription, MessageHandle), ExecutorError> {
        let send = move |session: &Session| {
            let events = session.subscribe(None);
            let sent = session.send(message.clone());
            let sent = sent.map_err(|error| failed(&error))?;
            Ok((session.clone(), events, sent))
        };
        self.with_session(context, send).await?
    }

    /// Calls a function with the session of a context. Opens the session if necessary, and keeps it open during the
    /// call.
    async fn with_session<T: Send + 'static>(
        &self,
        context: &ContextId,
        use_open: impl Fn(&Session) -> T + Clone + Send + 'static,
    ) -> Result<T, ExecutorError> {
        let id = session_id_of(context)?;
        let registry = self.sessions.registry();
        if let Some((idle, _reservation)) = registry.reserve_idle(self.open_max, &id, is_idle) {
            idle.close().await;
        }
        match registry.reserve(&id, use_open.clone()).await {
            ReserveResult::Open(used) => Ok(used),
            ReserveResult::Reserved(reservation) => {
                let (session, _reservation) = self.open(&id, reservation).await?;
                registry.keep(&session);
                // The function is called before the reservation is released. Later requests wait for the reservation,
                // so no request can close the session before the function has used it.
                Ok(use_open(&session))
            }
        }
    }

    /// Opens a session. An attempt goes on after this future is dropped, and releases the reservation at its end. A stop of
    /// a task therefore leaves no open session that the next task of the context cannot use.
    async fn open(
        &self,
        id: &SessionId,
        mut reservation: SessionReservation,
    ) -> Result<(Session, SessionReservation), ExecutorError> {
        loop {
            let opening = OpeningSession {
                sessions: self.sessions.clone(),
                folder: Arc::clone(&self.folder),
                is_shared: self.is_shared,
                reservation,
            };
            let spec = WorkSpec::new(ItemKind::Future, "opening of a session");
            let id = id.clone();
            let attempt = self.sessions.scope().spawn(spec, |_| opening.open(id));
            let attempt = attempt.map_err(|refused| failed(&refused))?.await;
            let opened;
            (opened, reservation) = attempt.map_err(|lost| failed(&lost))?;
            let is_in_use = matches!(opened, Err(OpenError::Session(SessionError::InUse { .. })));
            if !(is_in_use && self.is_shared) {
                let session = opened.map_err(|error| failed(&error))?;
                return Ok((session, reservation));
            }
            // Another process has the session open for a turn of this context. Turns of a context run one after
            // another, even in different processes, so this execution waits.
            sleep(IN_USE_PAUSE).await;
        }
    }

    /// Closes the session of a context if it is idle, so that another process can open it.
    pub(super) async fn close_unused(&self, context: &ContextId) {
        let Ok(id) = session_id_of(context) else {
            return;
        };
        if let Some((idle, _reservation)) = self.sessions.registry().reserve_open(&id, is_idle) {
            idle.close().await;
        }
    }
}

/// An attempt to open a session, with the reservation of its id.
struct OpeningSession {
    sessions: Sessions,
    folder: Arc<str>,
    is_shared: bool,
    reservation: SessionReservation,
}

impl OpeningSession {
    async fn open(self, id: SessionId) -> (Result<Session, OpenError>, SessionReservation) {
        let opened = match self.sessions.resume(id.clone()).await {
            Err(OpenError::Session(SessionError::NotFound(_))) => {
                self.sessions.create(Some(id), &*self.folder).await
            }
            opened => opened,
        };
        if let (Ok(session), false) = (&opened, self.is_shared) {
            // If the caller is gone, the next request finds the session open.
            self.sessions.registry().keep(session);
        }
        (opened, self.reservation)
    }
}

pub(super) fn is_idle(session: &Session) -> bool {
    !session.is_busy() && !session.has_background_activity()
}

/// Returns the id of the session of a context.
///
/// # Errors
/// Returns an error if the id cannot name a folder. A client chooses the id. The id must therefore not lead out of the
/// parent folder, or name the session of a sub-agent.
pub(super) fn session_id_of(context: &ContextId) -> Result<SessionId, ExecutorError> {
    let id = context.as_str();
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let is_name = id.bytes().all(is_allowed) && !id.starts_with('.');
    if id.is_empty() || id.len() > CONTEXT_ID_BYTES_MAX || !is_name {
        return Err(ExecutorError::new(format!(
            "the context id {id:?} is not usable: use 1 to {CONTEXT_ID_BYTES_MAX} letters, digits, `-`, `_`, `.` and \
             `:`, without a `.` at the start"
        )));
    }
    Ok(SessionId::new(format!("{CONTEXT_SESSION_PREFIX}{id}")))
}

/// Converts an error into the failure of a task.
pub(super) fn failed(error: &(dyn std::error::Error + 'static)) -> ExecutorError {
    ExecutorError::new(error_chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_id_never_leads_out_of_its_folder() {
        for id in [
            "",
            ".",
            "..",
            "../a",
            "a/b",
            "a\\b",
            ".hidden",
            "a\0",
            &"a".repeat(129),
        ] {
            session_id_of(&ContextId::new(id)).expect_err(id);
        }
        for id in ["01JD", "0f8b3a6e-1c2d", "a.b_c:d", &"a".repeat(128)] {
            let session = session_id_of(&ContextId::new(id)).unwrap();
            assert_eq!(session.as_str(), format!("context-{id}"));
        }
    }
}
