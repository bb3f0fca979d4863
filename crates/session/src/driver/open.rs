//! Log and agent of a session while its owner has them open.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use allstop_agent::{Background, HookEvent, TurnError, TurnErrorKind};
use allstop_core::turn::SessionState;
use allstop_log::{RecordObserver, SessionError, SessionStream};
use allstop_scope::{Scope, WorkHandle};
use allstop_tools::external::LateAnswer;
use allstop_tools::{BackgroundHost as _, Prompter};
use futures::FutureExt as _;
use tokio::sync::watch;

use super::SessionDriver;
use super::turn::bug;
use crate::events::SessionEventKind;
use crate::found;
use crate::shared::{Known, Shared};
use crate::source::{AgentRequest, SessionAgent};

/// The log of a session while it is being opened.
pub(super) type Opening = WorkHandle<Result<Box<SessionStream>, SessionError>>;

pub(super) struct Open {
    pub(super) session: SessionAgent,
    pub(super) background: Arc<Background>,
    pub(super) changes: watch::Receiver<u64>,
    /// `None` while a turn runs, which then has the log.
    pub(super) stream: Option<Box<SessionStream>>,
}

impl Open {
    pub(super) fn state(&self) -> Option<&SessionState> {
        Some(self.stream.as_ref()?.state())
    }
}

impl SessionDriver {
    /// Opens the session's log and agent, unless they are open. A stop does not wait for a store that hangs: the
    /// pending open continues, and the next call of this function waits for it.
    pub(super) async fn open(&mut self, stopped: &Scope) -> Result<(), TurnError> {
        if self.open.as_ref().is_some_and(|open| open.stream.is_some()) {
            return Ok(());
        }
        let opening = match self.opening.take() {
            Some(opening) => opening,
            None => self.begin_opening(),
        };
        let opening = self.opening.insert(opening);
        let opened = tokio::select! {
            biased;
            opened = opening => opened,
            () = stopped.stopped() => return Err(not_open("it was stopped before")),
        };
        self.opening = None;
        let mut stream =
            opened.map_err(|lost| bug(&format!("opening the log failed: {lost}")))??;
        stream.observe(observer(&self.shared));
        match &mut self.open {
            // The engine was lost, and the log with it. The background work is still owned by this session.
            Some(open) => open.stream = Some(stream),
            None => self.open_agent(stream).await?,
        }
        self.publish();
        Ok(())
    }

    /// Opens the log in a separate task: if a request to the store were dropped, the store could still grant the lock,
    /// and the lock would have no owner.
    fn begin_opening(&self) -> Opening {
        let opened = self.shared.inner.lock().opened.take();
        let (shared, scope) = (Arc::clone(&self.shared), self.scope.clone());
        let is_ours = self.open.is_some();
        self.scope.spawn_engine(async move {
            let mut stream = if let Some(stream) = opened {
                stream
            } else {
                let (log, id) = (Arc::clone(&shared.host.log), shared.id.clone());
                let at = (shared.host.options.now)();
                Box::new(SessionStream::resume(log, id, at).await?)
            };
            if !is_ours {
                let found = found::take_stock(&mut stream, &scope).await?;
                shared.remember_left(found);
            }
            Ok(stream)
        })
    }

    async fn open_agent(&mut self, stream: Box<SessionStream>) -> Result<(), TurnError> {
        let first = found::next_number(stream.state());
        let background = {
            // In one critical section: a stop of all background work must find the scope in which the tools start
            // theirs.
            let mut inner = self.shared.inner.lock();
            let awake = inner.awake.as_mut();
            let awake = awake.ok_or_else(|| not_open("it is being closed"))?;
            let background = Background::new(awake.background_scope.clone(), first);
            awake.background = Some(Arc::clone(&background));
            background
        };
        let request = AgentRequest {
            session: self.shared.id.clone(),
            scope: self.scope.clone(),
            background: Arc::clone(&background),
            prompter: Arc::clone(&self.shared.questions) as Arc<dyn Prompter>,
            on_late_answer: late_answers(&self.shared),
        };
        let source = Arc::clone(&self.shared.host.source);
        // Code of the embedding program: a panic fails only the message, and a stop does not wait if the code hangs.
        let making = AssertUnwindSafe(async move { source.agent(request).await }).catch_unwind();
        let session = tokio::select! {
            biased;
            made = making => made.map_err(|_| not_open("making its agent panicked"))??,
            () = self.scope.stopped() => return Err(not_open("it was stopped before")),
        };
        let resumed = !stream.state().turns().is_empty();
        self.open = Some(Open {
            changes: background.changes().subscribe(),
            background,
            session,
            stream: Some(stream),
        });
        let event = HookEvent::SessionStart { resumed };
        self.tell(&event, &self.scope).await;
        Ok(())
    }

    /// Opens the agent of a session whose log is already open, so that work of earlier processes is accounted for even
    /// without a message. If that fails, the next message reports the failure.
    pub(super) async fn open_resumed(&mut self) {
        if self.shared.inner.lock().opened.is_none() {
            return;
        }
        let scope = self.scope.clone();
        if let Err(error) = self.open(&scope).await {
            tracing::warn!(%error, "the session is not open yet");
        }
    }

    /// Publishes the current state of the log to the handles.
    pub(super) fn publish(&self) {
        let Some(open) = &self.open else { return };
        let Some(stream) = &open.stream else { return };
        let mut inner = self.shared.inner.lock();
        inner.known = Known {
            last_turn: allstop_core::TurnNumber(stream.state().next_turn().0 - 1),
            version: stream.version(),
        };
        if let Some(awake) = &mut inner.awake {
            awake.background = Some(Arc::clone(&open.background));
            awake.conversation = Some(Arc::clone(stream.state().conversation()));
        }
    }
}

/// Observer of every record: publishes it to subscribers, and its number to later subscribers.
fn observer(shared: &Arc<Shared>) -> RecordObserver {
    // The owner holds the log, and the log holds this observer: the cycle does not outlive the owner.
    let shared = Arc::clone(shared);
    Arc::new(move |version, record| {
        shared.inner.lock().known.version = version;
        shared.hub.record(version, record);
    })
}

fn late_answers(shared: &Shared) -> Arc<dyn Fn(LateAnswer) + Send + Sync> {
    let hub = Arc::clone(&shared.hub);
    Arc::new(move |late| {
        hub.send(|| SessionEventKind::LateAnswer {
            call_id: late.call_id,
            name: late.name,
        });
    })
}

fn not_open(why: &str) -> TurnError {
    TurnError {
        kind: TurnErrorKind::Store,
        message: format!("the session is not open: {why}"),
        hint: None,
    }
}
