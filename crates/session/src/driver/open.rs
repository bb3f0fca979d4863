//! A session's log and agent, while its owner has them.

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

/// The log of a session, being opened.
pub(super) type Opening = WorkHandle<Result<Box<SessionStream>, SessionError>>;

/// A session's log and agent.
pub(super) struct Open {
    pub(super) session: SessionAgent,
    pub(super) background: Arc<Background>,
    pub(super) changes: watch::Receiver<u64>,
    /// Elsewhere while a turn runs.
    pub(super) stream: Option<Box<SessionStream>>,
}

impl Open {
    pub(super) fn state(&self) -> Option<&SessionState> {
        Some(self.stream.as_ref()?.state())
    }
}

impl SessionDriver {
    /// The session's log and agent; opens them if they are not. A stop does not wait for a store that hangs: what it has
    /// been asked for goes on, and is there for the next one to ask.
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
            // The engine was lost, and the log with it. What runs in the background is still ours.
            Some(open) => open.stream = Some(stream),
            None => self.open_agent(stream).await?,
        }
        self.publish();
        Ok(())
    }

    /// Asks the store, in a task of its own: a dropped question is answered all the same, and would leave the lock with
    /// nobody.
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
            // In one step, so that a stop of all background work finds what the tools will start theirs in.
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
        // Somebody else's code: a panic there is the end of this message and not of the session, and where it hangs a stop
        // does not wait for it.
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

    /// Opens the agent of a session whose log is open already, so that what an earlier process left is accounted for
    /// whether or not a message follows. If that fails, the next message says why.
    pub(super) async fn open_resumed(&mut self) {
        if self.shared.inner.lock().opened.is_none() {
            return;
        }
        let scope = self.scope.clone();
        if let Err(error) = self.open(&scope).await {
            tracing::warn!(%error, "the session is not open yet");
        }
    }

    /// Shows handles what the log says now.
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

/// Hears of every record: subscribers get it, and its number is known to whoever subscribes next.
fn observer(shared: &Arc<Shared>) -> RecordObserver {
    // The owner holds the log, and with it this: no circle that outlives it.
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
