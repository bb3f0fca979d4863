//! Sessions of contexts: one handle for each context in use, shared by its tasks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{ContextId, SessionId, error_chain};
use allstop_log::SessionError;
use allstop_session::{MessageHandle, NewMessage, OpenError, Session, Sessions, Subscription};
use allstop_task::ExecutorError;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::sleep;

use super::AgentExecutorOptions;

/// Bytes of a context's id: with its prefix it is the name of a folder.
const CONTEXT_ID_BYTES_MAX: usize = 128;

/// Pause before another attempt to open a session that another process has open.
const IN_USE_PAUSE: Duration = Duration::from_millis(100);

/// Beginning of the ids of sessions that belong to contexts. A client chooses the id of its context: without a prefix it
/// could name a session of somebody else in the same store.
const CONTEXT_SESSION_PREFIX: &str = "context-";

#[derive(Debug)]
pub(super) struct ContextSessions {
    sessions: Sessions,
    folder: Arc<str>,
    open_max: usize,
    /// True if other processes use the same sessions.
    is_shared: bool,
    slots: Mutex<HashMap<SessionId, ContextSlot>>,
}

/// The session of one context; `None` while it is not open. Its lock is held while the session opens or closes.
type ContextSlot = Arc<tokio::sync::Mutex<Option<Session>>>;

impl ContextSessions {
    pub(super) fn new(
        sessions: Sessions,
        folder: Arc<str>,
        options: &AgentExecutorOptions,
    ) -> Self {
        Self {
            sessions,
            folder,
            open_max: options.sessions_open_max,
            is_shared: options.shares_sessions,
            slots: Mutex::default(),
        }
    }

    /// The session of a context. A new context gets a new session.
    ///
    /// # Errors
    /// If the context's id cannot be a session's id, or the session cannot be opened.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call opens the session.
    pub(super) async fn session(&self, context: &ContextId) -> Result<Session, ExecutorError> {
        let mut slot = self.lock_slot(context).await?;
        self.opened(&mut slot, context).await
    }

    /// Sends a message to the session of a context, and subscribes to the session first.
    ///
    /// # Errors
    /// As [`ContextSessions::session`], or the session refused the message.
    ///
    /// # Cancel safety
    /// Cancel safe: the message is sent in the last step.
    pub(super) async fn send(
        &self,
        context: &ContextId,
        message: NewMessage,
    ) -> Result<(Session, Subscription, MessageHandle), ExecutorError> {
        // Under the lock: an idle session is not closed in between.
        let mut slot = self.lock_slot(context).await?;
        let session = self.opened(&mut slot, context).await?;
        let events = session.subscribe(None);
        let sent = session.send(message).map_err(|error| failed(&error))?;
        Ok((session, events, sent))
    }

    async fn lock_slot(
        &self,
        context: &ContextId,
    ) -> Result<OwnedMutexGuard<Option<Session>>, ExecutorError> {
        let id = session_id_of(context)?;
        self.close_idle(&id).await;
        let slot = Arc::clone(self.slots.lock().entry(id).or_default());
        Ok(slot.lock_owned().await)
    }

    async fn opened(
        &self,
        slot: &mut Option<Session>,
        context: &ContextId,
    ) -> Result<Session, ExecutorError> {
        if let Some(session) = slot {
            if !session.is_closed() {
                return Ok(session.clone());
            }
            // Somebody has closed it. Its owner has the lock of the log until its end.
            session.close().await;
        }
        let id = session_id_of(context)?;
        let mut opened = self.open(id.clone()).await;
        while self.is_shared
            && let Err(OpenError::Session(SessionError::InUse { .. })) = opened
        {
            // The turns of a context run one after another, whichever process they are in.
            sleep(IN_USE_PAUSE).await;
            opened = self.open(id.clone()).await;
        }
        let session = opened.map_err(|error| failed(&error))?;
        Ok(slot.insert(session).clone())
    }

    async fn open(&self, id: SessionId) -> Result<Session, OpenError> {
        match self.sessions.resume(id.clone()).await {
            Err(OpenError::Session(SessionError::NotFound(_))) => {
                self.sessions.create(Some(id), &*self.folder).await
            }
            opened => opened,
        }
    }

    /// Closes the session of a context if nobody uses it here, so that another process can open it.
    pub(super) async fn close_unused(&self, context: &ContextId) {
        let Ok(id) = session_id_of(context) else {
            return;
        };
        let Some(slot) = self.slots.lock().get(&id).map(Arc::clone) else {
            return;
        };
        let mut slot = slot.lock_owned().await;
        if let Some(session) = slot.take_if(|session| is_idle(session)) {
            session.close().await;
        }
        drop(slot);
        self.forget_unused(&id);
    }

    /// Removes the slot of a context that nobody refers to.
    fn forget_unused(&self, id: &SessionId) {
        let mut slots = self.slots.lock();
        // New references are made under this lock only. An open session keeps its slot.
        if slots.get(id).is_some_and(|slot| {
            Arc::strong_count(slot) == 1 && slot.try_lock().is_ok_and(|slot| slot.is_none())
        }) {
            slots.remove(id);
        }
    }

    /// Closes an idle session if too many are open. `needed` stays open.
    async fn close_idle(&self, needed: &SessionId) {
        let found = {
            let slots = self.slots.lock();
            if slots.len() < self.open_max || slots.contains_key(needed) {
                return;
            }
            slots.iter().find_map(|(id, slot)| {
                // Whoever is about to send holds the lock.
                let idle = slot.clone().try_lock_owned().ok()?;
                idle.as_ref()
                    .is_none_or(is_idle)
                    .then(|| (id.clone(), idle))
            })
        };
        let Some((id, mut idle)) = found else {
            return;
        };
        if let Some(session) = idle.take() {
            session.close().await;
        }
        drop(idle);
        self.forget_unused(&id);
    }
}

fn is_idle(session: &Session) -> bool {
    !session.is_busy() && !session.has_background_activity()
}

/// Id of the session of a context.
///
/// # Errors
/// If the id cannot name a folder. A client chooses it, so it must not lead out of its parent folder, or name a
/// sub-agent's session.
fn session_id_of(context: &ContextId) -> Result<SessionId, ExecutorError> {
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

/// The failure of a task because of this error.
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
