//! Removal of conversations. Each context has a conversation, stored as a session. The conversation is deleted with the
//! last task of its context.

use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_core::turn::SessionState;
use allstop_core::{ContextId, SessionId};
use allstop_log::{Log, SessionError, read_session_end};
use allstop_scope::{Scope, WorkSpec};
use allstop_session::orphan_scan::scan_orphans;
use allstop_session::{ReserveResult, SessionRegistry, SessionReservation};
use allstop_task::{ContextData, ExecutorError};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::context_sessions::{failed, is_idle, session_id_of};
use crate::session_removal::{RemoveSessionError, remove_output, remove_session_with_output};

/// Conversations of contexts in a store. Clones refer to the same conversations.
///
/// [`forget`](ContextData::forget) deletes the session of a context and its long output. If the session is open and
/// idle in this process, it is closed first. A session that is in use, or whose background work runs, stays.
#[derive(Debug, Clone)]
pub struct ContextConversations {
    /// Store of the sessions.
    pub log: Arc<dyn Log>,
    /// Open sessions of this process; an empty registry if the process opens no sessions.
    pub registry: SessionRegistry,
    /// Folder for the long output of the sessions.
    pub spill_folder: PathBuf,
    /// Scope of the work that deletes files.
    pub scope: Scope,
}

impl ContextData for ContextConversations {
    fn forget(&self, context: ContextId) -> BoxFuture<'static, Result<(), ExecutorError>> {
        let this = self.clone();
        async move {
            match session_id_of(&context) {
                Ok(id) => this.delete(&id).await,
                // Such a context has no session: every task of it failed.
                Err(_unusable) => Ok(()),
            }
        }
        .boxed()
    }
}

impl ContextConversations {
    async fn delete(&self, id: &SessionId) -> Result<(), ExecutorError> {
        let _reservation = self.closed(id).await?;
        let log = &*self.log;
        match read_session_end(log, id).await {
            Ok((state, _)) => {
                if self.has_running_work(state).await {
                    return Err(ExecutorError::new(format!(
                        "background work of session {id} runs"
                    )));
                }
            }
            Err(SessionError::Log(error)) => return Err(failed(&error)),
            // An earlier call has deleted the session, or the session is unreadable and can still be removed.
            Err(_) => {}
        }
        let removed = remove_session_with_output(log, &self.spill_folder, &self.scope, id).await;
        match removed {
            Ok(()) => Ok(()),
            Err(RemoveSessionError::Session(SessionError::NotFound(_))) => {
                let removed = remove_output(&self.spill_folder, &self.scope, id).await;
                removed.map_err(|error| failed(&error))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    /// Closes the session if it is idle, and reserves its id, so that no task opens it in the meantime.
    async fn closed(&self, id: &SessionId) -> Result<SessionReservation, ExecutorError> {
        if let Some((idle, reservation)) = self.registry.reserve_open(id, is_idle) {
            idle.close().await;
            return Ok(reservation);
        }
        match self.registry.reserve(id, |_session| ()).await {
            ReserveResult::Reserved(reservation) => Ok(reservation),
            ReserveResult::Open(()) => Err(ExecutorError::new(format!("session {id} is in use"))),
        }
    }

    /// True if this process sees running background work of the session. The check may block its thread.
    async fn has_running_work(&self, state: SessionState) -> bool {
        let spec = WorkSpec::new(ItemKind::Thread, "checking earlier background work");
        let checked = self.scope.spawn_blocking(spec, move |_cx| {
            let mut found = scan_orphans(&state).into_iter();
            found.any(|work| work.alive && !work.is_out_of_view())
        });
        match checked {
            Ok(checked) => checked.await.unwrap_or(true),
            Err(_stopped) => true,
        }
    }
}
