//! A session's log and agent, while its owner has them.

use std::sync::Arc;

use allstop_agent::{Background, TurnError, TurnErrorKind};
use allstop_core::turn::SessionState;
use allstop_log::{RecordObserver, SessionError, SessionStream};
use allstop_tools::external::LateAnswer;
use allstop_tools::{BackgroundHost as _, Prompter};
use tokio::sync::watch;

use super::Driver;
use crate::events::SessionEventKind;
use crate::found;
use crate::shared::{Known, Shared};
use crate::source::{AgentRequest, SessionAgent};

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

impl Driver {
    /// The session's log and agent; opens them if they are not. A stop does not wait for a store that hangs.
    pub(super) async fn open(&mut self, stopped: &allstop_scope::Scope) -> Result<(), TurnError> {
        if self.open.is_some() {
            return Ok(());
        }
        let opened = self.shared.inner.lock().opened.take();
        let opening = async {
            let mut stream = if let Some(stream) = opened {
                stream
            } else {
                let host = &self.shared.host;
                let (log, id) = (Arc::clone(&host.log), self.shared.id.clone());
                let at = (host.options.now)();
                Box::new(SessionStream::resume(log, id, at).await?)
            };
            found::take_stock(&mut stream).await?;
            Ok::<_, SessionError>(stream)
        };
        let mut stream = tokio::select! {
            biased;
            () = stopped.stopped() => return Err(not_open("it was stopped before")),
            stream = opening => stream?,
        };
        stream.observe(observer(&self.shared));
        let background_scope = match &self.shared.inner.lock().awake {
            Some(awake) => awake.background_scope.clone(),
            None => return Err(not_open("it is being closed")),
        };
        let first = found::next_number(stream.state());
        let background = Background::new(background_scope, first);
        let request = AgentRequest {
            session: self.shared.id.clone(),
            background: Arc::clone(&background),
            prompter: Arc::clone(&self.shared.questions) as Arc<dyn Prompter>,
            on_late_answer: late_answers(&self.shared),
        };
        let session = self.shared.host.source.agent(request)?;
        let resumed = !stream.state().turns().is_empty();
        self.open = Some(Open {
            changes: background.changes().subscribe(),
            background,
            session,
            stream: Some(stream),
        });
        self.publish();
        self.tell_start(resumed).await;
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
    let publish = shared.hub.recorder();
    // The owner holds the log, and with it this: no circle that outlives it.
    let shared = Arc::clone(shared);
    Arc::new(move |version, record| {
        shared.inner.lock().known.version = version;
        publish(version, record);
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
