//! Subjects of an exploration: something that runs turns and can be stopped.

use std::sync::Arc;
use std::task::{Context, Poll};

use allstop_agent::{
    Agent, EventSink, Run, RunHistory, RunOutcome, RunRequest, SessionBackground, Settings,
};
use allstop_core::Receipt;
use allstop_log::SessionWriter;
use allstop_scope::{Scope, StopRequest, WorkLost};
use futures::FutureExt as _;
use futures::future::BoxFuture;

/// Work of a subject, with everything that it needs.
#[derive(Debug)]
pub struct SubjectPlay {
    /// Scope of the run: everything that it starts, it starts below.
    pub scope: Scope,
    /// The session, open for writing.
    pub session: SessionWriter,
    /// The user's messages, a turn each.
    pub prompts: Vec<Arc<str>>,
    /// Observer of the events.
    pub events: EventSink,
    /// The background work of the session, if there may be any.
    pub background: Option<Arc<SessionBackground>>,
}

/// Something that runs turns and can be stopped: an [`Agent`], or an engine of your own.
pub trait Subject: Send + Sync {
    /// Starts a run, in a task below `play.scope`.
    fn start(&self, play: SubjectPlay) -> Box<dyn RunningSubject>;

    /// Settings of the run: among them the policy of its stops and its budget.
    fn settings(&self) -> &Settings;
}

/// A run under way. Dropping it is the way in which a caller goes away.
pub trait RunningSubject: Send {
    /// Stops the running turn, and with it the run. When this returns nothing of it starts any more.
    fn stop(&self, order: StopRequest) -> BoxFuture<'static, Arc<Receipt>>;

    /// The outcome, once it is there.
    ///
    /// # Errors
    /// If the engine panicked.
    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunOutcome, WorkLost>>;
}

impl Subject for Agent {
    fn start(&self, play: SubjectPlay) -> Box<dyn RunningSubject> {
        let request = RunRequest {
            history: RunHistory::Logged(Box::new(play.session)),
            prompts: play.prompts.into_iter().map(Into::into).collect(),
            controls: Arc::default(),
            decision: None,
            context: None,
            background: play.background,
        };
        Box::new(Agent::start(self, &play.scope, request, play.events))
    }

    fn settings(&self) -> &Settings {
        Agent::settings(self)
    }
}

impl RunningSubject for Run {
    fn stop(&self, order: StopRequest) -> BoxFuture<'static, Arc<Receipt>> {
        let stop = self.scope().stop(order);
        Box::pin(async move { stop.receipt().await })
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunOutcome, WorkLost>> {
        // Waiting is cancel safe: a new future goes on where the last one was dropped.
        Box::pin(self.wait()).poll_unpin(cx)
    }
}
