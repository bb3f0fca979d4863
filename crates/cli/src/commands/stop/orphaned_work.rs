//! Stop of orphaned work: background work that still runs although no process owns its session. This process opens the
//! session, stops the work, and closes the session.

use std::collections::HashSet;
use std::sync::Arc;

use allstop_agent::Agent;
use allstop_core::SessionId;
use allstop_log::{Log, SessionError};
use allstop_model::ScriptedModel;
use allstop_scope::{RootOptions, Scope};
use allstop_session::{OpenError, Session, SessionOptions, Sessions, StopTarget};
use futures::future::join_all;

use super::super::unreported_sessions::unreported_sessions;
use super::SessionStopLine;
use crate::args::StopArgs;
use crate::error::CliError;
use crate::short_id::short;
use allstop_remote::ProcessNumber;

/// Sessions of a store that this process did not open.
#[derive(Debug, Default)]
pub(super) struct OtherSessions {
    /// Sessions that are open in a process without a socket, such as another `allstop stop`.
    pub(super) held: Vec<SessionId>,
    /// Sessions with running processes of their calls that belong to no known owner.
    pub(super) dying: Vec<SessionId>,
    /// Problems that prevent a stop, one per line.
    pub(super) problems: Vec<String>,
}

/// Sessions with orphaned work, opened by this process.
#[derive(Debug, Default)]
pub(super) struct OrphanedSessions(Vec<Session>);

impl OrphanedSessions {
    /// Opens all sessions of the store that have orphaned work and that no process has open. `known` and `asked` have
    /// the same meaning as for [`unreported_sessions`].
    ///
    /// # Errors
    /// If the store failed.
    pub(super) async fn of_store(
        log: Arc<dyn Log>,
        scopes: RootOptions,
        known: &HashSet<SessionId>,
        asked: &HashSet<ProcessNumber>,
    ) -> Result<(OtherSessions, Self), CliError> {
        let scope = Scope::root("search for left work", scopes.clone());
        let unreported = unreported_sessions(&*log, known, asked, &scope).await?;
        let held = unreported.unreachable.into_iter().map(|held| held.id);
        let mut others = OtherSessions {
            held: held.collect(),
            dying: unreported.dying,
            problems: unreported.unexamined,
        };
        let mut left = Vec::new();
        for session in unreported.left {
            let id = short(session.id.as_str()).to_owned();
            match open(&log, scopes.clone(), session.id.clone()).await {
                Ok(session) => left.push(session),
                Err(OpenError::Session(SessionError::InUse { .. })) => others.held.push(session.id),
                Err(error) => others.problems.push(format!(
                    "cannot stop the work that was left running in session `{id}`: {error}"
                )),
            }
        }
        Ok((others, Self(left)))
    }

    /// Opens this session. `None` if another process has it open.
    ///
    /// # Errors
    /// If the session cannot be opened.
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

    /// Stops the work of all sessions concurrently, and closes the sessions.
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
                let stop = session.stop(target, args.cause(by));
                if args.now {
                    stop.force();
                }
                (*stop.receipt().await).clone()
            };
            // Closing the session also writes the end of the work to the log.
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
    let options = SessionOptions::default().sleep_after(None);
    // A session needs an agent to write records. This agent never calls its model, because the session receives no
    // message.
    let agent = Agent::new(Arc::new(ScriptedModel::new(Vec::new()))).build();
    let sessions = Sessions::new(Arc::clone(log), scope, Arc::new(agent), options);
    sessions.resume(id).await
}
