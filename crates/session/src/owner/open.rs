//! Log and agent of a session while its owner has them open.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use allstop_agent::{HookEvent, OrphanItems, SessionBackground, TurnError, TurnErrorKind};
use allstop_core::turn::SessionState;
use allstop_log::{RecordObserver, SessionError, SessionWriter};
use allstop_scope::{Scope, WorkHandle};
use allstop_tools::external::LateAnswer;
use allstop_tools::{BackgroundHost as _, Prompter};
use futures::FutureExt as _;
use tokio::sync::watch;

use super::SessionOwner;
use crate::events::SessionEventKind;
use crate::inner::{LogPosition, SessionInner};
use crate::orphan_scan;
use crate::source::{AgentRequest, SessionAgent};

/// The log of a session while it is being opened.
pub(super) type PendingOpen = WorkHandle<Result<Box<SessionWriter>, SessionError>>;

pub(super) struct OwnerResources {
    pub(super) session: SessionAgent,
    pub(super) background: Arc<SessionBackground>,
    pub(super) changes: watch::Receiver<u64>,
    /// The log; `None` while a running turn has it.
    pub(super) writer: Option<Box<SessionWriter>>,
}

impl OwnerResources {
    pub(super) fn state(&self) -> Option<&SessionState> {
        Some(self.writer.as_ref()?.state())
    }
}

impl SessionOwner {
    /// Opens the session's log and agent, unless they are open. A stop does not wait for a hanging store: the pending
    /// open continues, and the next call of this function waits for the pending open.
    pub(super) async fn open(&mut self, stopped: &Scope) -> Result<(), TurnError> {
        if self
            .resources
            .as_ref()
            .is_some_and(|open| open.writer.is_some())
        {
            return Ok(());
        }
        let pending_open = match self.pending_open.take() {
            Some(pending_open) => pending_open,
            None => self.begin_open(),
        };
        let pending_open = self.pending_open.insert(pending_open);
        let opened = tokio::select! {
            biased;
            opened = pending_open => opened,
            () = stopped.stopped() => return Err(not_open("it was stopped")),
        };
        self.pending_open = None;
        let mut writer =
            opened.map_err(|lost| TurnError::bug(format!("opening the log failed: {lost}")))??;
        writer.observe(observer(&self.inner));
        match &mut self.resources {
            // The turn engine, the task that ran the last turn, was lost together with the log. This session still owns
            // the background work.
            Some(open) => open.writer = Some(writer),
            None => self.open_agent(writer, stopped).await?,
        }
        self.publish();
        Ok(())
    }

    /// Opens the log in a separate task. If a request to the store were dropped, the store could still grant the lock,
    /// and the lock would have no owner.
    fn begin_open(&self) -> PendingOpen {
        let opened = self.inner.state.lock().opened.take();
        let (inner, scope) = (Arc::clone(&self.inner), self.scope.clone());
        let is_ours = self.resources.is_some();
        self.scope.spawn_engine(async move {
            let mut writer = if let Some(writer) = opened {
                writer
            } else {
                inner.resume_log().await?
            };
            if !is_ours {
                let works = orphan_scan::settled_work(writer.state(), &scope).await;
                let lost = inner.state.lock().orphans.checked(works);
                orphan_scan::record_lost_work(&mut writer, lost).await?;
            }
            Ok(writer)
        })
    }

    async fn open_agent(
        &mut self,
        writer: Box<SessionWriter>,
        scope: &Scope,
    ) -> Result<(), TurnError> {
        let first = orphan_scan::next_number(writer.state());
        let background = {
            // One critical section reads the background scope and stores the background work. Otherwise a stop of all
            // background work could replace the scope in between, and the tools would start new work in the old,
            // stopped scope.
            let mut state = self.inner.state.lock();
            let awake = state.awake.as_mut();
            let awake = awake.ok_or_else(|| not_open("it is closing"))?;
            let background = SessionBackground::new(
                awake.background_scope.clone(),
                first,
                orphan_items(&self.inner),
            );
            awake.background = Some(Arc::clone(&background));
            background
        };
        let request = AgentRequest {
            session: self.inner.id.clone(),
            scope: self.scope.clone(),
            background: Arc::clone(&background),
            prompter: Arc::clone(&self.inner.questions) as Arc<dyn Prompter>,
            on_late_answer: late_answers(&self.inner),
        };
        let source = Arc::clone(&self.inner.host.source);
        // The agent source is code of the embedding program. A panic in this code fails only the message that opens the
        // session, and a stop does not wait for hanging code.
        let agent_future =
            AssertUnwindSafe(async move { source.agent(request).await }).catch_unwind();
        let session = tokio::select! {
            biased;
            agent = agent_future => agent.map_err(|_| not_open("its agent source panicked"))??,
            () = self.scope.stopped() => return Err(not_open("it was stopped")),
        };
        let resumed = !writer.state().turns().is_empty();
        self.resources = Some(OwnerResources {
            changes: background.changes().subscribe(),
            background,
            session,
            writer: Some(writer),
        });
        let event = HookEvent::SessionStart { resumed };
        // The hook runs in a scope below the turn that opens the session. A stop of the turn therefore ends the hook,
        // and the result of the stop, its receipt, lists the hook.
        self.call_hooks(&event, scope).await;
        Ok(())
    }

    /// Opens the agent at once if the session starts with an open log. The log then records the ends of earlier
    /// processes' background work even if no message follows. If the open fails, the next message reports the failure.
    pub(super) async fn open_at_start(&mut self) {
        if self.inner.state.lock().opened.is_none() {
            return;
        }
        let scope = self.scope.clone();
        if let Err(error) = self.open(&scope).await {
            tracing::warn!(%error, "the next message opens the session");
        }
    }

    /// Publishes the current state of the log to the handles.
    pub(super) fn publish(&self) {
        let Some(open) = &self.resources else { return };
        let Some(writer) = &open.writer else { return };
        let mut state = self.inner.state.lock();
        state.position = LogPosition {
            last_turn: allstop_core::TurnNumber(writer.state().next_turn().0 - 1),
            version: writer.version(),
        };
        if let Some(awake) = &mut state.awake {
            awake.background = Some(Arc::clone(&open.background));
            awake.conversation = Some(Arc::clone(writer.state().conversation()));
        }
    }
}

/// Observer of every record. Publishes the record to subscribers, and stores its number for later subscribers.
fn observer(inner: &Arc<SessionInner>) -> RecordObserver {
    // The reference to the session may be strong: only the open log holds this observer, and the owner closes the log
    // at its end.
    let inner = Arc::clone(inner);
    Arc::new(move |version, record| {
        inner.state.lock().position.version = version;
        inner.hub.record(version, record);
    })
}

fn late_answers(inner: &SessionInner) -> Arc<dyn Fn(LateAnswer) + Send + Sync> {
    let hub = Arc::clone(&inner.hub);
    Arc::new(move |late| {
        hub.send(|| SessionEventKind::LateAnswer {
            call_id: late.call_id,
            name: late.name,
        });
    })
}

/// Receipt items for orphaned work: background work that runs without this process. If a turn is stopped, the receipt
/// of the stop lists this work as running outside the turn.
fn orphan_items(inner: &Arc<SessionInner>) -> OrphanItems {
    // The reference is weak, because the session holds its background work, and the background work holds this closure.
    let inner = Arc::downgrade(inner);
    Box::new(move || {
        let inner = inner.upgrade();
        inner.map_or_else(Vec::new, |inner| {
            inner.state.lock().orphan_items().collect()
        })
    })
}

pub(super) fn not_open(why: &str) -> TurnError {
    TurnError {
        kind: TurnErrorKind::Store,
        message: format!("the session could not be opened: {why}"),
        hint: None,
    }
}
