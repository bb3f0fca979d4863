//! What is explored: a session's agent, its options, and what its user does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop_agent::{Agent, Background, TurnError};
use allstop_core::record::SessionRecord;
use allstop_core::{MessageId, Timestamp};
use allstop_session::{AgentRequest, AgentSource, FollowUp, SessionAgent, SessionOptions};
use allstop_tools::{BackgroundHost as _, BackgroundWork};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::talk::Talk;
use crate::explore::stage::Stage;

type Build = dyn Fn(&Stage, &AgentRequest) -> Agent + Send + Sync;
type Script = dyn Fn(Talk) -> BoxFuture<'static, ()> + Send + Sync;

/// What is explored: a session's agent, its options, and what its user does.
pub struct SessionPlay {
    pub(crate) source: Arc<Source>,
    pub(crate) script: Box<Script>,
    pub(crate) options: SessionOptions,
    pub(crate) left_behind: Vec<SessionRecord>,
    /// The number of the newest message.
    pub(crate) messages: Arc<AtomicU64>,
}

impl fmt::Debug for SessionPlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPlay")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl SessionPlay {
    pub(crate) fn new<F>(
        stage: &Stage,
        script: impl Fn(Talk) -> F + Send + Sync + 'static,
        build: impl Fn(&Stage, &AgentRequest) -> Agent + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let messages = Arc::new(AtomicU64::new(0));
        let newest = Arc::clone(&messages);
        // Not a point: it is asked for under the session's own lock.
        let new_message_id =
            move || MessageId::new(format!("m_{}", newest.fetch_add(1, Ordering::Relaxed) + 1));
        Self {
            source: Arc::new(Source {
                stage: stage.clone(),
                build: Box::new(build),
                opened: Mutex::default(),
            }),
            script: Box::new(move |talk| script(talk).boxed()),
            options: SessionOptions {
                follow_up: FollowUp::Enqueue,
                now: Arc::new(|| Timestamp::from_unix_ms(0)),
                new_message_id: Arc::new(new_message_id),
                ..SessionOptions::default()
            },
            left_behind: Vec::new(),
            messages,
        }
    }
}

/// Builds the agent each time when the session is opened.
pub(crate) struct Source {
    stage: Stage,
    build: Box<Build>,
    opened: Mutex<Vec<Arc<Background>>>,
}

impl Source {
    /// All background work that the session ever had.
    pub(crate) fn works(&self) -> Vec<Arc<BackgroundWork>> {
        let opened = self.opened.lock();
        opened.iter().flat_map(|opened| opened.works()).collect()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl AgentSource for Source {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            self.opened.lock().push(Arc::clone(&request.background));
            Ok(SessionAgent {
                agent: (self.build)(&self.stage, &request),
                kept: None,
            })
        })
    }
}
