//! Subjects of an exploration. A subject runs turns and can be stopped.

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

/// Work for a subject: a session, its messages, and the means to play them.
#[derive(Debug)]
pub struct SubjectPlay {
    /// Scope of the run. The subject starts all its work below this scope.
    pub scope: Scope,
    /// The session, open for writing.
    pub session: SessionWriter,
    /// The user's messages. Each message gets a turn.
    pub prompts: Vec<Arc<str>>,
    /// Observer of the events.
    pub events: EventSink,
    /// The background work of the session; `None` if the session has none.
    pub background: Option<Arc<SessionBackground>>,
}

/// Runs turns and can be stopped: an [`Agent`], or your own engine.
pub trait Subject: Send + Sync {
    /// Starts a run, in a task below `play.scope`.
    fn start(&self, play: SubjectPlay) -> Box<dyn RunningSubject>;

    /// Settings of the run, including the policy of its stops and its budget.
    fn settings(&self) -> &Settings;
}

/// A run of a subject that has started. Dropping this value simulates a caller that leaves.
pub trait RunningSubject: Send {
    /// Stops the running turn and the run. After this method has returned, no work of the run starts.
    fn stop(&self, order: StopRequest) -> BoxFuture<'static, Arc<Receipt>>;

    /// The outcome, when it is available.
    ///
    /// # Errors
    /// Returns an error if the engine panicked.
    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunOutcome, WorkLost>>;
}

impl Subject for Agent {
    fn start(&self, play: SubjectPlay) -> Box<dyn RunningSubject> {
        let request =
            RunRequest::of_prompts(RunHistory::Logged(Box::new(play.session)), play.prompts)
                .background(play.background);
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
        // Waiting is cancel safe: a new future continues where the previous future was dropped.
        Box::pin(self.wait()).poll_unpin(cx)
    }
}
