//! A run: consecutive turns under one scope and one deadline.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use allstop_core::decision::CommitDecision;
use allstop_core::receipt::{ConversationEffect, StopInfo};
use allstop_core::turn::{BackgroundNote, LoopDetector};
use allstop_core::{Cause, CauseKind, Extent, Receipt, StopReason};
use allstop_scope::{
    Deadline, NotStarted, Scope, ScopeOptions, Stop, StopRequest, WorkHandle, WorkLost,
    instant_after,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::{Duration, Instant, timeout};

use crate::background::SessionBackground;
use crate::controls::RunControls;
use crate::error::TurnError;
use crate::event::EventSink;
use crate::history::RunHistory;
use crate::notes;
use crate::outcome::{RunOutcome, TurnOutcome};
use crate::parts::AgentParts;
use crate::prompt::Prompt;
use crate::turn::{self, TurnCx, TurnInput};

/// Maximum wait for the ending of a turn after its stop: the time limit for writing that ending.
pub const ENDING_MAX: Duration = Duration::from_secs(1);

/// Input of a run.
#[derive(Debug)]
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
        Self {
            history,
            prompts: VecDeque::from([prompt.into()]),
            context: None,
            background: None,
            controls: Arc::default(),
            decision: None,
        }
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
}

impl Run {
    pub(crate) fn start(
        parts: Arc<AgentParts>,
        parent: &Scope,
        request: RunRequest,
        events: EventSink,
    ) -> Self {
        let bystander = request
            .background
            .as_ref()
            .map(|background| background.whole());
        let scope = run_scope(&parts, parent, &request, bystander.clone());
        let controls = Arc::clone(&request.controls);
        let above = parent.clone();
        let engine = parent.spawn_engine(drive(parts, above, scope.clone(), request, events));
        Self {
            scope: scope.unwrap_or_else(|_| parent.clone()),
            engine: Some(engine),
            bystander,
            controls,
        }
    }

    /// Control of the run, in addition to a stop.
    pub fn controls(&self) -> &Arc<RunControls> {
        &self.controls
    }

    /// Stops the running turn and the run: no further turn starts. Background work continues, and the receipt lists it.
    pub fn stop(&self, cause: Cause) -> RunStop {
        let mut order = StopRequest::new(Extent::Turn, cause);
        order.bystanders.extend(self.bystander.clone());
        RunStop {
            stop: self.scope.stop(order),
            controls: Arc::clone(&self.controls),
        }
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

/// An accepted stop of a run. [`RunStop::receipt`] waits for the receipt; dropping this value changes nothing.
#[derive(Debug, Clone)]
#[must_use = "the receipt says what still runs"]
pub struct RunStop {
    stop: Stop,
    controls: Arc<RunControls>,
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
        let _ended_or_not = timeout(ENDING_MAX, ending.has_outcome()).await;
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
        if self.engine.is_some() {
            let _receipt_goes_to_the_log = self.stop(Cause::new(CauseKind::Disconnect));
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
    let options = ScopeOptions {
        deadline,
        ..ScopeOptions::default()
    };
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
            Some(background) => notes::undelivered_notes(&request.history, background),
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
