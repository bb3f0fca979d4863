//! Background work that no process owns: its session is opened, the work is stopped, and the session is closed.

use std::collections::HashSet;
use std::sync::Arc;

use allstop_agent::Agent;
use allstop_core::{Cause, CauseKind, SessionId};
use allstop_log::{Log, SessionError};
use allstop_model::ScriptedModel;
use allstop_scope::{RootOptions, Scope};
use allstop_session::{OpenError, Session, SessionOptions, Sessions, StopTarget};
use futures::future::join_all;

use super::super::untold_sessions::untold_sessions;
use super::SessionStopLine;
use crate::args::StopArgs;
use crate::error::CliError;
use crate::short_id::short;
use allstop_remote::ProcessNumber;

/// Sessions with work that runs without an owner, opened here.
#[derive(Debug, Default)]
pub(super) struct LeftWork(Vec<Session>);

impl LeftWork {
    /// Of all sessions in the store that no process has open, with the problems that prevent a stop, a line each. `known`,
    /// `asked`: as of [`untold_sessions`].
    ///
    /// # Errors
    /// If the store failed.
    pub(super) async fn of_store(
        log: Arc<dyn Log>,
        scopes: RootOptions,
        known: &HashSet<SessionId>,
        asked: &HashSet<ProcessNumber>,
    ) -> Result<(Self, Vec<String>), CliError> {
        let untold = untold_sessions(&*log, known, asked).await?;
        let mut problems = untold.problems();
        let mut left = Vec::new();
        for session in untold.left {
            let id = short(session.id.as_str()).to_owned();
            match open(&log, scopes.clone(), session.id).await {
                Ok(session) => left.push(session),
                Err(error) => problems.push(format!(
                    "work that was left running in the session `{id}` is not stopped: {error}"
                )),
            }
        }
        Ok((Self(left), problems))
    }

    /// Of this session. `None`: another process has it open.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) async fn of_session(
        log: Arc<dyn Log>,
        scopes: RootOptions,
        id: SessionId,
    ) -> Result<Option<Self>, CliError> {
        match open(&log, scopes, id).await {
            Ok(session) => Ok(Some(Self(vec![session]))),
            Err(OpenError::Session(SessionError::InUse { .. })) => Ok(None),
            Err(error) => Err(CliError::failure(error.to_string())),
        }
    }

    /// Stops the work of all sessions at once, and closes them.
    pub(super) async fn stop(
        self,
        target: &StopTarget,
        args: &StopArgs,
        by: &str,
    ) -> Vec<SessionStopLine> {
        let stopping = self.0.iter().map(async |session| {
            let receipt = if args.preview {
                session.preview(target)
            } else {
                let cause = Cause::new(CauseKind::User).by(by.to_owned());
                let stop = session.stop(target, cause);
                if args.now {
                    stop.force();
                }
                (*stop.receipt().await).clone()
            };
            // The log has the end of the work then.
            drop(session.close().await);
            SessionStopLine::new(session.id().clone(), receipt)
        });
        join_all(stopping).await
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
    // Nobody sends a message, so the model is not asked. Without an agent the session could record nothing.
    let agent = Agent::builder(Arc::new(ScriptedModel::new(Vec::new()))).build();
    let sessions = Sessions::new(Arc::clone(log), scope, Arc::new(agent), options);
    sessions.resume(id).await
}
