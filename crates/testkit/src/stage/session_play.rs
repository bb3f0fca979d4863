//! Session to explore: its agent, its options, and the script of its user. The user sends messages, waits, and looks at
//! events.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use allstop_agent::{Agent, SessionBackground, TurnError};
use allstop_core::record::SessionRecord;
use allstop_core::{MessageId, Timestamp};
use allstop_session::{
    AgentRequest, AgentSource, FollowUp, MessageHandle, MessageOutcome, NewMessage, Session,
    SessionAgent, SessionEvent, SessionOptions, WaitResult,
};
use allstop_tools::{BackgroundHost as _, BackgroundWork};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::RunStage;
use super::session_under_way::SessionUnderWay;
use crate::observe::DeliveryJournal;

type Build = dyn Fn(&RunStage, &AgentRequest) -> Agent + Send + Sync;
type Script = dyn Fn(ScriptedUser) -> BoxFuture<'static, ()> + Send + Sync;

/// Session to explore: its agent, its options, and the script of its user.
pub(crate) struct SessionPlay {
    pub(crate) source: Arc<ScenarioAgents>,
    pub(crate) script: Box<Script>,
    pub(crate) options: SessionOptions,
    pub(crate) earlier_records: Vec<SessionRecord>,
    /// Number of the last message.
    pub(crate) messages: Arc<AtomicU64>,
}

impl SessionPlay {
    pub(crate) fn new<F>(
        stage: &RunStage,
        script: impl Fn(ScriptedUser) -> F + Send + Sync + 'static,
        build: impl Fn(&RunStage, &AgentRequest) -> Agent + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let messages = Arc::new(AtomicU64::new(0));
        let newest = Arc::clone(&messages);
        // The creation of an id is not a point, because the session holds its lock at that time.
        let new_message_id =
            move || MessageId::new(format!("m_{}", newest.fetch_add(1, Ordering::Relaxed) + 1));
        Self {
            source: Arc::new(ScenarioAgents {
                stage: stage.clone(),
                build: Box::new(build),
                opened: Mutex::default(),
            }),
            script: Box::new(move |user| script(user).boxed()),
            options: SessionOptions::default()
                .follow_up(FollowUp::Enqueue)
                .now(Arc::new(|| Timestamp::from_unix_ms(0)))
                .new_message_id(Arc::new(new_message_id)),
            earlier_records: Vec::new(),
            messages,
        }
    }

    /// Starts to observe the session.
    pub(crate) fn begin(
        &self,
        stage: &RunStage,
        journal: Option<Arc<DeliveryJournal>>,
    ) -> Arc<SessionUnderWay> {
        let stops = stage.planned_stops();
        SessionUnderWay::new(&stage.watch, &stage.root, stops, &self.messages, journal)
    }
}

/// Builds the agent each time the session is opened.
pub(crate) struct ScenarioAgents {
    stage: RunStage,
    build: Box<Build>,
    opened: Mutex<Vec<Arc<SessionBackground>>>,
}

impl ScenarioAgents {
    /// All background work that the session has had since it was first opened.
    pub(crate) fn works(&self) -> Vec<Arc<BackgroundWork>> {
        let opened = self.opened.lock();
        opened.iter().flat_map(|opened| opened.works()).collect()
    }
}

impl fmt::Debug for ScenarioAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScenarioAgents").finish_non_exhaustive()
    }
}

impl AgentSource for ScenarioAgents {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            self.opened.lock().push(Arc::clone(&request.background));
            Ok(SessionAgent {
                agent: (self.build)(&self.stage, &request),
                resources: None,
            })
        })
    }
}

/// Maximum time that a user waits for an event. A stop may have prevented the event.
const LOOKS_FOR: Duration = Duration::from_mins(2);

/// The user of an explored session. Clones share the user.
#[derive(Clone)]
pub struct ScriptedUser {
    pub(crate) session: Session,
    pub(crate) live: Arc<SessionUnderWay>,
}

impl ScriptedUser {
    /// The session, for actions other than sending messages.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Sends a message. `None` if the session did not accept the message.
    pub fn send(&self, message: impl Into<NewMessage>) -> Option<MessageHandle> {
        self.live.send(&self.session, message.into())
    }

    /// Sends a message and waits for its outcome. `None` if the session did not accept the message.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, nothing is stopped.
    pub async fn ask(&self, message: impl Into<NewMessage>) -> Option<Arc<MessageOutcome>> {
        Some(self.send(message)?.outcome().await)
    }

    /// Sends a message and waits until the session is idle. `None` if the session did not accept the message, or if the
    /// explorer removed the waiter.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, nothing is stopped.
    pub async fn send_and_wait(
        &self,
        message: impl Into<NewMessage>,
        limit: Duration,
    ) -> Option<WaitResult> {
        let waiter = self.live.wait(&self.session, message.into(), limit);
        // No waker is needed, because the explorer polls its user after every event.
        std::future::poll_fn(|_| self.live.waited(waiter)).await
    }

    /// Waits until `wanted` returns true for an event that the subscriber has received. Returns false if no such event
    /// arrives within two minutes, for example because a stop prevented it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn until(&self, wanted: impl Fn(&SessionEvent) -> bool) -> bool {
        let seen = std::future::poll_fn(|_| {
            if self.live.has_seen(&wanted) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        timeout(LOOKS_FOR, seen).await.is_ok()
    }
}

impl fmt::Debug for ScriptedUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedUser").finish_non_exhaustive()
    }
}
