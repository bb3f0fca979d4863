//! A run: consecutive turns under one scope and one deadline.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use allstop_core::decision::CommitDecision;
use allstop_core::receipt::{ConversationEffect, StopInfo};
use allstop_core::turn::{BackgroundNote, LoopDetector};
use allstop_core::{CallId, Cause, CauseKind, Extent, Receipt, StopReason};
use allstop_scope::{
    Deadline, NotStarted, Scope, ScopeOptions, Stop, StopRequest, WorkHandle, WorkLost,
    instant_after,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::SetOnce;
use tokio::time::{Duration, Instant};
use tracing::Instrument as _;

use crate::answer::Outcome;
use crate::background::SessionBackground;
use crate::controls::RunControls;
use crate::error::TurnError;
use crate::event::EventSink;
use crate::history::RunHistory;
use crate::notes;
use crate::outcome::{RunOutcome, TurnOutcome};
use crate::parts::AgentParts;
use crate::prompt::Prompt;
use crate::run_events::{EventsEnd, RunEvents};
use crate::turn::{self, TurnCx, TurnInput};

/// Maximum wait for the ending of a turn after its stop: the time limit for writing that ending.
pub const ENDING_MAX: Duration = Duration::from_secs(1);

/// Input of a run.
#[derive(Debug)]
#[non_exhaustive]
pub struct RunRequest {
    /// Destination of the turns, with the conversation so far.
    pub history: RunHistory,
    /// Messages of the user. Each message starts one turn. The run ends after the first turn that does not complete.
    pub prompts: VecDeque<Prompt>,
    /// Extra context for this run only: appended to the system prompt and not stored.
    pub context: Option<Arc<str>>,
    /// Background work of the session, if the tools start any.
    pub background: Option<Arc<SessionBackground>>,
    /// Control of the run while it runs.
    pub controls: Arc<RunControls>,
    /// Decision of the first turn between commit and stop, if the caller has already created it. If the caller's scope
    /// holds this decision, a stop of that scope knows whether the commit came before the stop.
    pub decision: Option<Arc<CommitDecision>>,
}

impl RunRequest {
    /// Creates a request with one prompt.
    pub fn new(history: RunHistory, prompt: impl Into<Prompt>) -> Self {
        Self::of_prompts(history, [prompt])
    }

    /// Creates a request with several prompts. Each prompt starts one turn.
    pub fn of_prompts(
        history: RunHistory,
        prompts: impl IntoIterator<Item = impl Into<Prompt>>,
    ) -> Self {
        Self {
            history,
            prompts: prompts.into_iter().map(Into::into).collect(),
            context: None,
            background: None,
            controls: Arc::default(),
            decision: None,
        }
    }

    /// Sets the background work of the session.
    #[must_use]
    pub fn background(mut self, background: impl Into<Option<Arc<SessionBackground>>>) -> Self {
        self.background = background.into();
        self
    }
}

/// A run in progress. Dropping this value stops the run with cause `disconnect`; the receipt is then written to the
/// log.
#[derive(Debug)]
#[must_use = "dropping a run stops it"]
pub struct Run {
    scope: Scope,
    engine: Option<WorkHandle<RunOutcome>>,
    bystander: Option<Scope>,
    controls: Arc<RunControls>,
    events: RunEvents,
    /// Dropped with the run, which ends the wait for the signals of [`Run::stop_on`].
    ended: Arc<SetOnce<()>>,
}

impl Run {
    pub(crate) fn start(
        parts: Arc<AgentParts>,
        parent: &Scope,
        request: RunRequest,
        (events, end): (EventSink, Option<EventsEnd>),
    ) -> Self {
        let bystander = request
            .background
            .as_ref()
            .map(|background| background.whole());
        let scope = run_scope(&parts, parent, &request, bystander.clone());
        let controls = Arc::clone(&request.controls);
        let above = parent.clone();
        let turns = drive(parts, above, scope.clone(), request, events);
        let engine = async move {
            let _ends_with_the_turns = end;
            turns.await
        };
        // The turns belong to the trace of the caller, such as the call that starts a sub-agent.
        let engine = parent.spawn_engine(engine.in_current_span());
        Self {
            scope: scope.unwrap_or_else(|_| parent.clone()),
            engine: Some(engine),
            bystander,
            controls,
            events: RunEvents::none(),
            ended: Arc::default(),
        }
    }

    pub(crate) fn with_events(mut self, events: RunEvents) -> Self {
        self.events = events;
        self
    }

    /// Events of a run that [`Agent::run`](crate::Agent::run) has started, from its first event on. No event of other
    /// runs: their caller has passed a sink.
    pub fn events(&self) -> RunEvents {
        self.events.clone()
    }

    /// Stops the run with cause `user` when the signal resolves, such as `tokio::signal::ctrl_c()`. The signal is awaited
    /// on the thread of the stops, so work that blocks its thread does not delay it.
    pub fn stop_on<S: Future + Send + 'static>(self, signal: S) -> Self {
        let (ended, stop) = (Arc::clone(&self.ended), self.stopper());
        let watch = async move {
            tokio::select! {
                biased;
                _ended = ended.wait() => {}
                _signal = signal => drop(stop.stop(CauseKind::User)),
            }
        };
        let _ends_with_the_run = self.scope.spawn_engine(watch);
        self
    }

    /// A handle that stops the run while another part of the program waits for it.
    pub fn stopper(&self) -> RunStopper {
        RunStopper {
            scope: self.scope.clone(),
            bystander: self.bystander.clone(),
            controls: Arc::clone(&self.controls),
        }
    }

    /// Stops one call with cause `user`; the turn and its other calls continue. True if this request has stopped the call;
    /// false if the call is unknown, has ended or is stopped already.
    pub fn cancel_call(&self, call: &CallId) -> bool {
        self.controls.cancel_call(call)
    }

    /// Control of the run, in addition to a stop.
    pub fn controls(&self) -> &Arc<RunControls> {
        &self.controls
    }

    /// Stops the running turn and the run: no further turn starts. Background work continues, and the receipt lists it.
    pub fn stop(&self, cause: impl Into<Cause>) -> RunStop {
        self.stopper().stop(cause)
    }

    /// Scope of the turns.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Waits for the end of the run. The future owns the run during the wait.
    ///
    /// # Errors
    /// If the engine itself panicked, which is a bug. The next start of the session then ends the turn.
    ///
    /// # Cancel safety
    /// Dropping the future drops the run, which stops the run.
    pub async fn finish(mut self) -> Result<RunOutcome, WorkLost> {
        self.wait().await
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// Same as [`Run::finish`].
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future stops nothing.
    ///
    /// # Panics
    /// If the outcome was taken before.
    pub async fn wait(&mut self) -> Result<RunOutcome, WorkLost> {
        let engine = self.engine.as_mut().expect("a run is waited for once");
        let outcome = engine.await;
        self.engine = None;
        outcome
    }
}

/// Stops a run from another part of the program. Dropping this value stops nothing.
#[derive(Debug, Clone)]
pub struct RunStopper {
    scope: Scope,
    bystander: Option<Scope>,
    controls: Arc<RunControls>,
}

impl RunStopper {
    /// Stops the run, like [`Run::stop`].
    pub fn stop(&self, cause: impl Into<Cause>) -> RunStop {
        let mut order = StopRequest::new(Extent::Turn, cause.into());
        order.bystanders.extend(self.bystander.clone());
        RunStop {
            stop: self.scope.stop(order),
            controls: Arc::clone(&self.controls),
            scope: self.scope.clone(),
        }
    }
}

/// Waits for the outcome of the run: of its last turn. The future owns the run, so dropping the future stops the run with
/// cause `disconnect`.
impl IntoFuture for Run {
    type Output = Outcome;
    type IntoFuture = BoxFuture<'static, Outcome>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let ended = self.finish().await;
            let last = ended.ok().and_then(|mut run| run.turns.pop());
            last.map_or_else(
                || Outcome::of_bug("the engine of the run was lost"),
                Outcome::from,
            )
        })
    }
}

/// An accepted stop of a run. [`RunStop::receipt`] waits for the receipt; dropping this value changes nothing.
#[derive(Debug, Clone)]
#[must_use = "the receipt says what still runs"]
pub struct RunStop {
    stop: Stop,
    controls: Arc<RunControls>,
    scope: Scope,
}

impl RunStop {
    /// The accepted request.
    pub fn request(&self) -> &StopInfo {
        self.stop.request()
    }

    /// Ends the grace (the time in which work may end by itself) now, and ends the remaining work by force.
    pub fn force(&self) {
        self.stop.force();
    }

    /// Waits for the receipt, which contains the effect on the conversation and the usage of the turn. The wait takes
    /// at most the grace, [`FORCE_MAX`](allstop_scope::FORCE_MAX) and one second for the ending of the turn. If the
    /// ending is not written by then, the effect is `unknown`.
    ///
    /// # Cancel safety
    /// Cancel safe: the stop continues even if no caller waits.
    pub async fn receipt(&self) -> Arc<Receipt> {
        let receipt = self.stop.receipt().await;
        if receipt.outcome().is_some() {
            return receipt;
        }
        let ending = self.controls.ending_turn();
        let ended = ending.has_outcome();
        let _ended_or_not = self.scope.timeout(ENDING_MAX, ended).await;
        let (conversation, usage) = match ending.outcome() {
            Some(turn) => match turn.receipt {
                Some(own) if own.is_of_same_work(&receipt) => return own,
                Some(own) => (own.conversation(), turn.usage),
                None if turn.is_ending_known => (ConversationEffect::Unchanged, turn.usage),
                None => (ConversationEffect::Unknown, turn.usage),
            },
            None => (ConversationEffect::Unknown, self.controls.usage()),
        };
        let receipt = Arc::unwrap_or_clone(receipt);
        Arc::new(receipt.with_conversation(conversation).with_usage(usage))
    }
}

impl IntoFuture for RunStop {
    type Output = Arc<Receipt>;
    type IntoFuture = BoxFuture<'static, Arc<Receipt>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.receipt().await })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Fails if the end was recorded before.
        let _ = self.ended.set(());
        if self.engine.is_some() {
            let _receipt_goes_to_the_log = self.stop(CauseKind::Disconnect);
        }
    }
}

fn run_scope(
    parts: &AgentParts,
    parent: &Scope,
    request: &RunRequest,
    bystander: Option<Scope>,
) -> Result<Scope, NotStarted> {
    let deadline = parts.settings.deadlines.run.map(|limit| Deadline {
        at: instant_after(Instant::now(), limit),
        stops: None,
        detail: format!("run deadline of {limit:?}").into(),
        extent: Extent::Turn,
        bystanders: bystander.into_iter().collect(),
    });
    let label = format!("session/{}/run", request.history.session_id());
    let options = ScopeOptions::default().deadline(deadline);
    parent.child(label, options)
}

/// Engine of the run: the task that runs the turns in order until a turn does not complete.
async fn drive(
    parts: Arc<AgentParts>,
    above: Scope,
    scope: Result<Scope, NotStarted>,
    mut request: RunRequest,
    events: EventSink,
) -> RunOutcome {
    let mut turns = Vec::with_capacity(request.prompts.len());
    let mut loops = LoopDetector::new(parts.settings.loop_limits);
    while let Some(prompt) = request.prompts.pop_front() {
        tokio::select! {
            biased;
            () = request.history.settle() => {}
            () = above.stopped() => {}
        }
        let notes: Vec<BackgroundNote> = match &request.background {
            Some(background) => {
                notes::undelivered_notes(&request.history, background, &parts.hooks)
            }
            None => Vec::new(),
        };
        let input = TurnInput {
            prompt,
            notes,
            decision: request.decision.take().unwrap_or_default(),
        };
        let cx = TurnCx {
            parts: &parts,
            above: &above,
            run: scope.as_ref(),
            controls: &request.controls,
            background: request.background.as_ref(),
            context: request.context.as_ref(),
            events: &events,
        };
        let turn = turn::run(cx, &mut request.history, &mut loops, input);
        let outcome = match AssertUnwindSafe(turn).catch_unwind().await {
            Ok(outcome) => outcome,
            // The log has the earlier turns, and its next owner ends this turn.
            Err(panic) if request.history.is_logged() => std::panic::resume_unwind(panic),
            Err(_panic) => end_panicked_turn(cx, &mut request.history).await,
        };
        let completed = outcome.stop_reason == StopReason::Completed;
        turns.push(outcome);
        if !completed {
            break;
        }
    }
    if let Ok(scope) = &scope {
        scope.close();
    }
    RunOutcome {
        turns,
        history: request.history,
    }
}

/// Stops the work of a turn that panicked. The conversation keeps the earlier turns of the run.
async fn end_panicked_turn(cx: TurnCx<'_>, history: &mut RunHistory) -> TurnOutcome {
    let error = TurnError::bug("the turn panicked; the panic's message is on standard error");
    let cause = Cause::new(CauseKind::Failure).detail(error.message.clone());
    let receipt = match cx.run {
        Ok(run) => Some(
            run.stop(StopRequest::new(Extent::Turn, cause.clone()))
                .await,
        ),
        Err(_) => None,
    };
    cx.controls.end_turn();
    let (turn, conversation) = (history.next_turn(), history.conversation());
    history.publish(Arc::clone(&conversation));
    TurnOutcome {
        turn,
        stop_reason: StopReason::Error,
        cause: Some(cause),
        output: "".into(),
        finish: None,
        steps: 0,
        usage: cx.controls.usage(),
        receipt,
        denials: Vec::new(),
        error: Some(error),
        conversation,
        lost: None,
        summary: None,
        is_ending_known: true,
        is_ending_written: false,
    }
}
