//! Creates and resumes the sessions of one system.

use std::fmt;
use std::sync::Arc;

use allstop_core::record::SessionRecord;
use allstop_core::{SessionId, TurnNumber};
use allstop_log::{Log, SessionError, SessionWriter};
use allstop_scope::{NotStarted, Scope};

use crate::inner::{LogPosition, SessionInner};
use crate::orphan_scan;
use crate::orphan_search::OrphanSearch;
use crate::orphaned_calls;
use crate::registry::SessionRegistry;
use crate::session::Session;
use crate::source::{AgentSource, SessionHost, SessionOptions};

/// The sessions of one system. Clones refer to the same sessions. No two sessions share a lock.
#[derive(Clone)]
pub struct Sessions {
    pub(crate) host: Arc<SessionHost>,
    registry: SessionRegistry,
}

/// Reason why a session was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log failed or rejected the request.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// All work of this process is being stopped.
    #[error(transparent)]
    Stopped(#[from] NotStarted),
}

impl Sessions {
    /// Creates the sessions of a system with this log, below this scope, with agents from this source.
    pub fn new(
        log: Arc<dyn Log>,
        scope: Scope,
        source: Arc<dyn AgentSource>,
        options: SessionOptions,
    ) -> Self {
        Self {
            host: Arc::new(SessionHost {
                log,
                scope,
                source,
                options,
            }),
            registry: SessionRegistry::default(),
        }
    }

    /// Enters newly opened sessions in this registry, which other [`Sessions`] may share.
    #[must_use]
    pub fn in_registry(mut self, registry: SessionRegistry) -> Self {
        self.registry = registry;
        self
    }

    /// The registry of the open sessions.
    pub fn registry(&self) -> &SessionRegistry {
        &self.registry
    }

    /// Scope of the sessions.
    pub fn scope(&self) -> &Scope {
        &self.host.scope
    }

    /// The log of the sessions.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.host.log
    }

    /// Creates a session. `None` as id creates a new id; `folder` is the working directory of the session.
    ///
    /// # Errors
    /// Returns an error if a session with this id exists, the store failed, or all work is being stopped.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a session without a turn.
    pub async fn create(
        &self,
        id: Option<SessionId>,
        folder: impl Into<Arc<str>>,
    ) -> Result<Session, OpenError> {
        self.create_with(id, folder, Vec::new()).await
    }

    /// Creates a session that begins with these records.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a session without a turn.
    pub(crate) async fn create_with(
        &self,
        id: Option<SessionId>,
        folder: impl Into<Arc<str>>,
        records: Vec<SessionRecord>,
    ) -> Result<Session, OpenError> {
        self.host.scope.check()?;
        let id = id.unwrap_or_else(|| SessionId::new(ulid::Ulid::generate().to_string()));
        let log = Arc::clone(&self.host.log);
        let options = &self.host.options;
        let (now, settings) = ((options.now)(), options.settings.clone());
        let mut writer = SessionWriter::create(log, id, now, folder, settings).await?;
        if !records.is_empty() {
            writer.append(records).await?;
        }
        self.opened(writer, OrphanSearch::default())
    }

    /// Opens an existing session. On return, a turn that a crash left open has been ended. The session also knows the
    /// work that earlier processes left running, so a stop of all work finds it. This includes processes of calls whose
    /// owner and keeper were killed: the open records them as background work.
    ///
    /// # Errors
    /// Returns an error if the session does not exist, another process has it open, the session cannot be read, or the
    /// store failed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the session unchanged, or recovered.
    pub async fn resume(&self, id: SessionId) -> Result<Session, OpenError> {
        self.host.scope.check()?;
        let log = Arc::clone(&self.host.log);
        let options = &self.host.options;
        let now = (options.now)();
        let mut writer = SessionWriter::resume(log, id, now).await?;
        if let Some(settings) = &options.settings {
            writer.change_settings(Arc::clone(settings), now).await?;
        }
        let scope = &self.host.scope;
        let unsearched = orphaned_calls::record_orphaned_calls(&mut writer, scope).await?;
        let works = orphan_scan::running_orphans(writer.state(), scope).await;
        self.opened(writer, OrphanSearch { works, unsearched })
    }

    fn opened(&self, writer: SessionWriter, left: OrphanSearch) -> Result<Session, OpenError> {
        let position = LogPosition {
            last_turn: TurnNumber(writer.state().next_turn().0 - 1),
            version: writer.version(),
        };
        let (host, registry) = (Arc::clone(&self.host), self.registry.clone());
        let leave = Box::new(move |session: &SessionInner| registry.leave(session));
        let inner = SessionInner::new(host, leave, writer.id().clone(), position);
        let session = Session { inner };
        // The session enters the registry before its owner starts, because an owner that ends at once removes the
        // session from the registry.
        self.registry.enter(&session);
        if let Err(refused) = session.inner.start_with(writer, left) {
            session.inner.hub.close();
            session.inner.end();
            return Err(refused.into());
        }
        Ok(session)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}
