//! One turn, from its start to its ending. A turn is a message of the user and all steps that answer it. All work of a
//! turn runs in the turn's scope, so that a stop of the scope ends the work. The receipt is the result of the stop.

mod answer_check;
mod calls;
mod cx;
mod ending;
mod hooks;
mod model_call;
mod steps;

use std::sync::Arc;

use allstop_core::decision::CommitDecision;
use allstop_core::receipt::{ItemKind, ItemState};
use allstop_core::record::SessionRecord;
use allstop_core::turn::{
    BackgroundNote, DetectedLoop, Draft, DraftError, IllegalEvent, LoopDetector, StartRefusal,
    StopPolicy, TurnLimits, TurnStart,
};
use allstop_core::{
    CallId, Cause, CauseKind, Extent, FinishReason, Receipt, StopReason, Timestamp, TraceContext,
};
use allstop_log::SessionError;
use allstop_model::RequestHeaders;
use allstop_scope::{
    Deadline, EngineGuard, PartReceipt, Placement, Scope, ScopeOptions, instant_after,
};
use allstop_tools::Denial;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::activity::ActivityTimer;
use crate::error::TurnError;
use crate::event::{AgentEvent, UnfinishedCall};
use crate::history::RunHistory;
use crate::nested_calls::NestedCalls;
use crate::outcome::TurnOutcome;
use crate::parts::AgentParts;
use crate::prompt::Prompt;
use crate::request_view::RequestView;
use crate::spans::WorkSpan;
pub(crate) use cx::TurnCx;

/// Input of a turn.
pub(crate) struct TurnInput {
    pub(crate) prompt: Prompt,
    pub(crate) notes: Vec<BackgroundNote>,
    pub(crate) decision: Arc<CommitDecision>,
}

/// Reason why a turn ends without a final answer.
pub(crate) enum TurnInterrupt {
    /// A stop covers the turn. The turn's scope has the cause.
    Stopped,
    /// A limit refused the next step.
    Refused(StartRefusal),
    /// The model repeated the same calls.
    Loop(DetectedLoop),
    Guardrail(String),
    /// The turn showed no sign of activity for too long.
    Inactivity(Cause),
    /// A failure that ends the turn.
    Failed(TurnError),
}

impl From<DraftError> for TurnInterrupt {
    fn from(error: DraftError) -> Self {
        match error {
            DraftError::Refused(StartRefusal::Stopped(_)) => Self::Stopped,
            DraftError::Refused(refusal) => Self::Refused(refusal),
            DraftError::Illegal(illegal) => illegal.into(),
        }
    }
}

impl From<IllegalEvent> for TurnInterrupt {
    fn from(illegal: IllegalEvent) -> Self {
        Self::Failed(illegal.into())
    }
}

pub(crate) struct RunningTurn<'a> {
    cx: TurnCx<'a>,
    history: &'a mut RunHistory,
    loops: &'a mut LoopDetector,
    draft: Draft,
    /// Scope of the turn, which a stop covers.
    scope: Scope,
    /// Scope for the work of the running step: the scope of the turn, or a scope with the step's deadline.
    work: Scope,
    engine: EngineGuard,
    /// Records for the next append.
    pending: Vec<SessionRecord>,
    denials: Vec<Denial>,
    /// Reason why the model ended its last answer.
    finish: FinishReason,
    /// True if the model has been asked once more for an answer in the required format.
    is_repairing: bool,
    /// Number of times that hooks have prolonged this turn.
    prolonged: u32,
    /// Receipts of calls that ended although some of their work still runs. The outcome of the turn lists that work,
    /// for every kind of ending.
    leftovers: Vec<Arc<Receipt>>,
    /// Receipt of the stop that ends the turn; set when the stop begins.
    account: Option<Arc<PartReceipt>>,
    /// Time of the last sign of activity, shared with the calls.
    activity: Arc<ActivityTimer>,
    /// Calls of the sub-agents that run in this turn's calls.
    nested: Arc<NestedCalls>,
    trace: Option<TraceContext>,
    /// Further headers of the requests to the model.
    headers: RequestHeaders,
    /// Form of the conversation in the requests.
    view: RequestView,
    /// Maximum tokens of a request, learned from a request that the provider has refused as too long.
    context_tokens_max: Option<u64>,
}

/// Runs one turn and always returns its ending.
pub(crate) async fn run(
    cx: TurnCx<'_>,
    history: &mut RunHistory,
    loops: &mut LoopDetector,
    input: TurnInput,
) -> TurnOutcome {
    let TurnInput {
        prompt,
        notes,
        decision,
    } = input;
    cx.controls
        .begin_turn(&decision, cx.parts.settings.stop_policy);
    let start = TurnStart {
        turn: history.next_turn(),
        input: prompt.text,
        images: prompt.images,
        at: (cx.parts.now)(),
        owner: cx.parts.owner.clone(),
        message: prompt.message,
        origin: prompt.origin,
        notes,
    };
    let span = WorkSpan::turn(
        cx.parts,
        history.session_id(),
        start.turn,
        prompt.trace.as_ref(),
    );
    cx.events.send(|| AgentEvent::TurnStarted {
        session_id: history.session_id().clone(),
        turn: start.turn,
    });
    let outcome = run_in_span(
        cx,
        history,
        loops,
        &start,
        (prompt.trace, prompt.headers),
        decision,
    )
    .instrument(span.span.clone())
    .await;
    span.record_outcome(&outcome);
    cx.events.send(|| AgentEvent::TurnEnded {
        turn: outcome.turn,
        stop_reason: outcome.stop_reason,
        cause: outcome.cause.clone(),
        usage: outcome.usage,
        unfinished: unfinished_calls(&outcome),
        lost: outcome.lost.clone().map(Arc::new),
    });
    outcome
}

async fn run_in_span(
    cx: TurnCx<'_>,
    history: &mut RunHistory,
    loops: &mut LoopDetector,
    start: &TurnStart,
    (trace, headers): (Option<TraceContext>, RequestHeaders),
    decision: Arc<CommitDecision>,
) -> TurnOutcome {
    let opened = open_scope(cx, history, start, &decision);
    if let Err(Some(cause)) = &opened {
        decision.stop(cause.clone());
    }
    let settings = &cx.parts.settings;
    let limits = TurnLimits::default()
        .steps_max(settings.steps_max)
        .turns_max(settings.turns_max)
        .budget(settings.budget.clone());
    let draft = Draft::begin(history.conversation(), start, &limits, decision);
    let (scope, draft) = match (opened, draft) {
        (Ok(scope), Ok(draft)) => (scope, draft),
        (opened, Err(refusal)) => {
            let scope = opened.ok();
            let refused = ending::end_unstarted_turn(cx, history, start, scope.as_ref(), &refusal);
            return Box::pin(refused).await;
        }
        (Err(_), Ok(_)) => {
            let refusal = StartRefusal::Stopped(Cause::new(CauseKind::Parent));
            return Box::pin(ending::end_unstarted_turn(
                cx, history, start, None, &refusal,
            ))
            .await;
        }
    };
    let nested = Arc::new(NestedCalls::new(draft.base()));
    let mut turn = RunningTurn {
        cx,
        history,
        loops,
        draft,
        work: scope.clone(),
        engine: scope.attach_engine(),
        scope,
        pending: vec![start.record()],
        denials: Vec::new(),
        finish: FinishReason::Done,
        is_repairing: false,
        prolonged: 0,
        leftovers: Vec::new(),
        account: None,
        activity: Arc::new(ActivityTimer::new(
            cx.events.clone(),
            Arc::clone(&nested),
            cx.background.cloned(),
            Arc::clone(&cx.parts.prompter),
        )),
        nested,
        trace,
        headers,
        view: RequestView::default(),
        context_tokens_max: None,
    };
    match turn.steps(start).await {
        Ok(output) => turn.commit(output).await,
        // This future is boxed, like all futures that are rarely awaited, because a run's task is as large as its
        // largest future.
        Err(interrupt) => Box::pin(turn.end(interrupt)).await,
    }
}

/// Opens the scope of the turn. `Err(Some(cause))` if a stop came first.
fn open_scope(
    cx: TurnCx<'_>,
    history: &RunHistory,
    start: &TurnStart,
    decision: &Arc<CommitDecision>,
) -> Result<Scope, Option<Cause>> {
    let run = cx.run.map_err(|refused| refused.cause().cloned())?;
    let deadline = cx.parts.settings.deadlines.turn.map(|limit| Deadline {
        at: instant_after(Instant::now(), limit),
        stops: None,
        detail: format!("turn deadline of {limit:?}").into(),
        extent: Extent::Turn,
        bystanders: cx
            .background
            .map(|background| background.whole())
            .into_iter()
            .collect(),
    });
    let options = ScopeOptions::default()
        .deadline(deadline)
        .decision(Arc::clone(decision))
        .placement(Placement::Shared);
    let label = format!("session/{}/turn/{}", history.session_id(), start.turn);
    run.child(label, options)
        .map_err(|refused| refused.cause().cloned())
}

impl RunningTurn<'_> {
    fn parts(&self) -> &AgentParts {
        self.cx.parts
    }

    fn now(&self) -> Timestamp {
        (self.cx.parts.now)()
    }

    /// Appends the pending records. A stop interrupts the wait for the store. Whether the interrupted append was
    /// written is then determined with the ending. Records that were not written become pending again and are written
    /// with the ending, because the recorded events have happened.
    async fn flush(&mut self) -> Result<(), TurnInterrupt> {
        for record in self.take_background() {
            if let SessionRecord::BackgroundStarted { id, name, .. } = &record {
                let (id, name) = (id.clone(), Arc::clone(name));
                self.cx
                    .events
                    .send(|| AgentEvent::BackgroundStarted { id, name });
            }
            self.pending.push(record);
        }
        if !self.history.is_logged() {
            self.pending.clear();
        }
        if self.pending.is_empty() {
            self.nested.confirm();
            return Ok(());
        }
        if self.parts().settings.stop_policy == StopPolicy::Keep {
            // A crash then keeps the same messages as a stop.
            self.pending.extend(self.draft.keep_messages());
        }
        let records = std::mem::take(&mut self.pending);
        let appended = tokio::select! {
            biased;
            appended = self.history.append(records) => appended,
            () = self.scope.stopped() => Err(SessionError::Indeterminate),
        };
        let Err(error) = appended else {
            self.draft.confirm_kept();
            self.nested.confirm();
            return Ok(());
        };
        self.pending = self.history.take_refused_records();
        if self.scope.is_stopped() {
            self.engine.acknowledge();
            return Err(TurnInterrupt::Stopped);
        }
        Err(TurnInterrupt::Failed(error.into()))
    }

    /// Takes the records of background work since the last append.
    fn take_background(&mut self) -> Vec<SessionRecord> {
        let Some(background) = self.cx.background else {
            return Vec::new();
        };
        let records = background.take_records(self.draft.state().number());
        self.draft.observe_background(&records);
        records
    }
}

/// Tool calls that ran when the turn was stopped, from the receipt.
fn unfinished_calls(outcome: &TurnOutcome) -> Vec<UnfinishedCall> {
    let receipt = outcome.receipt.as_ref();
    let receipt = receipt.filter(|_| outcome.stop_reason != StopReason::Completed);
    let items = receipt.into_iter().flat_map(|receipt| receipt.items());
    let calls = items.filter(|item| {
        item.kind == ItemKind::ToolCall && !matches!(item.state, ItemState::Finished { .. })
    });
    let unfinished = calls.map(|item| UnfinishedCall {
        call_id: CallId::from(&*item.id),
        state: item.state.clone(),
    });
    unfinished.collect()
}
