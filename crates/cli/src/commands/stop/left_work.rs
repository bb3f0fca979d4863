//! Background work that no process owns: its session is opened, the work is stopped, and the session is closed.

use std::collections::HashSet;
use std::sync::Arc;

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_core::{Cause, CauseKind, SessionId};
use allstop_log::Log;
use allstop_scope::{RootOptions, Scope};
use allstop_session::{
    AgentRequest, AgentSource, OpenError, Session, SessionAgent, SessionOptions, Sessions,
    StopTarget,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::super::left_sessions::left_sessions;
use crate::error::CliError;
use crate::remote::StoppedSession;

/// Sessions with work that runs without an owner, opened here.
#[derive(Debug, Default)]
pub(super) struct LeftWork(Vec<Session>);

/// Source for a session to which nobody sends a message.
#[derive(Debug)]
struct NoAgent;

impl AgentSource for NoAgent {
    fn agent(&self, _request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        let error = TurnError {
            kind: TurnErrorKind::Bug,
            message: "this session is open only for a stop".to_owned(),
            hint: None,
        };
        std::future::ready(Err(error)).boxed()
    }
}

impl LeftWork {
    /// Of all sessions in the store that no process has open.
    ///
    /// # Errors
    /// If the store failed.
    pub(super) async fn of_store(
        log: Arc<dyn Log>,
        scopes: RootOptions,
        open_elsewhere: &HashSet<SessionId>,
    ) -> Result<Self, CliError> {
        let mut left = Vec::new();
        for session in left_sessions(&*log, open_elsewhere).await? {
            if let Ok(session) = open(&log, scopes.clone(), session.id).await {
                left.push(session);
            }
        }
        Ok(Self(left))
    }

    /// Of this session.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) async fn of_session(
        log: Arc<dyn Log>,
        scopes: RootOptions,
        id: SessionId,
    ) -> Result<Self, CliError> {
        let session = open(&log, scopes, id).await;
        let session = session.map_err(|error| CliError::failure(error.to_string()))?;
        Ok(Self(vec![session]))
    }

    /// Stops the work, and closes the sessions.
    pub(super) async fn stop(self, is_preview: bool, now: bool, by: &str) -> Vec<StoppedSession> {
        let mut stopped = Vec::new();
        for session in self.0 {
            let receipt = if is_preview {
                session.preview(&StopTarget::AllWork)
            } else {
                let cause = Cause::new(CauseKind::User).by(by.to_owned());
                let stop = session.stop(&StopTarget::AllWork, cause);
                if now {
                    stop.force();
                }
                (*stop.receipt().await).clone()
            };
            stopped.push(StoppedSession {
                session: session.id().clone(),
                receipt,
            });
            drop(session.close().await);
        }
        stopped
    }
}

async fn open(
    log: &Arc<dyn Log>,
    scopes: RootOptions,
    id: SessionId,
) -> Result<Session, OpenError> {
    let scope = Scope::root("stop of left work", scopes);
    let options = SessionOptions {
        sleep_after: None,
        ..SessionOptions::default()
    };
    let sessions = Sessions::new(Arc::clone(log), scope, Arc::new(NoAgent), options);
    sessions.resume(id).await
}
