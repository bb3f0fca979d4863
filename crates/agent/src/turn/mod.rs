//! One turn, driven from its entry to its ending.

mod calls;
mod ending;
mod model_call;
mod steps;

use std::sync::Arc;

use allstop_core::decision::Decision;
use allstop_core::receipt::{ItemKind, ItemState};
use allstop_core::record::SessionRecord;
use allstop_core::turn::{
    Draft, DraftError, IllegalEvent, LoopDetector, LoopFound, Note, Refusal, TurnLimits, TurnStart,
};
use allstop_core::{
    CallId, Cause, CauseKind, Extent, FinishReason, Receipt, StopReason, Timestamp,
};
use allstop_log::SessionError;
use allstop_scope::{
    Account, Deadline, EngineGuard, NotStarted, Placement, Scope, ScopeOptions, instant_after,
};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::background::Background;
use crate::controls::RunControls;
use crate::error::{TurnError, TurnErrorKind};
use crate::event::{AgentEvent, EventSink, UnfinishedCall};
use crate::history::History;
use crate::hook::{self, HookCx, HookEvent, Told};
use crate::life::Life;
use crate::outcome::{Denial, TurnOutcome};
use crate::parts::Parts;
use crate::prompt::Prompt;

/// What a turn is given.
#[derive(Clone, Copy)]
pub(crate) struct TurnCx<'a> {
    pub(crate) parts: &'a Arc<Parts>,
    /// The scope that the run was started in.
    pub(crate) above: &'a Scope,
    /// The scope of the run; the refusal, if it never opened.
    pub(crate) run: Result<&'a Scope, &'a NotStarted>,
    pub(crate) controls: &'a Arc<RunControls>,
    pub(crate) background: Option<&'a Arc<Background>>,
    pub(crate) context: Option<&'a Arc<str>>,
    pub(crate) events: &'a EventSink,
}

/// What a turn is asked.
pub(crate) struct Asked {
    pub(crate) prompt: Prompt,
    pub(crate) notes: Vec<Note>,
    pub(crate) decision: Arc<Decision>,
}

/// Why the steps of a turn did not come to a final answer.
pub(crate) enum Interrupt {
    /// A stop covers the turn; its scope knows why.
    Stopped,
    /// A limit.
    Refused(Refusal),
    /// The same calls again and again.
    Loop(LoopFound),
    /// A guardrail refused.
    Guardrail(String),
    /// Nothing was heard for too long.
    Inactivity(Cause),
    /// A failure that the turn cannot absorb.
    Failed(TurnError),
}

impl From<DraftError> for Interrupt {
    fn from(error: DraftError) -> Self {
        match error {
            DraftError::Refused(Refusal::Stopped(_)) => Self::Stopped,
            DraftError::Refused(refusal) => Self::Refused(refusal),
            DraftError::Illegal(illegal) => illegal.into(),
        }
    }
}

impl From<IllegalEvent> for Interrupt {
    fn from(illegal: IllegalEvent) -> Self {
        Self::Failed(illegal.into())
    }
}

/// A turn under way.
pub(crate) struct Turn<'a> {
    cx: TurnCx<'a>,
    history: &'a mut History,
    loops: &'a mut LoopDetector,
    draft: Draft,
    /// The turn's scope: what stops cover.
    scope: Scope,
    /// Where the work of the running step is registered: the turn's scope, or one with the step's deadline.
    work: Scope,
    engine: EngineGuard,
    /// Records that go with the next append.
    pending: Vec<SessionRecord>,
    denials: Vec<Denial>,
    /// How the model ended its last answer.
    finish: FinishReason,
    /// The receipts of calls that ended and left something running: what is left is named, whatever the turn comes to.
    leftovers: Vec<Arc<Receipt>>,
    /// The account of the stop that ends the turn, once it has begun.
    account: Option<Arc<Account>>,
    /// Signs of life, from wherever the turn runs.
    life: Arc<Life>,
    /// The trace context of the message.
    trace: Option<Arc<str>>,
}

/// Runs one turn. Always returns, with the turn's one ending.
pub(crate) async fn run(
    cx: TurnCx<'_>,
    history: &mut History,
    loops: &mut LoopDetector,
    asked: Asked,
) -> TurnOutcome {
    let Asked {
        prompt,
        notes,
        decision,
    } = asked;
    cx.controls
        .begin_turn(&decision, cx.parts.settings.stop_policy);
    let start = TurnStart {
        turn: history.next_turn(),
        input: prompt.text,
        at: (cx.parts.now)(),
        owner: cx.parts.owner.clone(),
        message: prompt.message,
        origin: prompt.origin,
        notes,
    };
    let span = tracing::info_span!(
        "turn",
        session = %history.session_id(),
        turn = start.turn.0,
        stop_reason = tracing::field::Empty,
        cause = tracing::field::Empty,
    );
    cx.events.send(|| AgentEvent::TurnStarted {
        session_id: history.session_id().clone(),
        turn: start.turn,
    });
    let outcome = run_in_span(cx, history, loops, &start, prompt.trace, decision)
        .instrument(span.clone())
        .await;
    span.record("stop_reason", outcome.stop_reason.as_str());
    if let Some(cause) = &outcome.cause {
        span.record("cause", tracing::field::display(cause));
    }
    cx.events.send(|| AgentEvent::TurnEnded {
        turn: outcome.turn,
        stop_reason: outcome.stop_reason,
        cause: outcome.cause.clone(),
        usage: outcome.usage,
        unfinished: unfinished_calls(&outcome),
    });
    outcome
}

async fn run_in_span(
    cx: TurnCx<'_>,
    history: &mut History,
    loops: &mut LoopDetector,
    start: &TurnStart,
    trace: Option<Arc<str>>,
    decision: Arc<Decision>,
) -> TurnOutcome {
    let opened = open_scope(cx, history, start, &decision);
    if let Err(Some(cause)) = &opened {
        decision.stop(cause.clone());
    }
    let settings = &cx.parts.settings;
    let limits = TurnLimits {
        steps_max: settings.steps_max,
        turns_max: settings.turns_max,
        budget: settings.budget.clone(),
    };
    let draft = Draft::begin(history.conversation(), start, &limits, decision);
    let (scope, draft) = match (opened, draft) {
        (Ok(scope), Ok(draft)) => (scope, draft),
        (opened, Err(refusal)) => {
            let scope = opened.ok();
            let refused = ending::refused(cx, history, start, scope.as_ref(), &refusal);
            return Box::pin(refused).await;
        }
        (Err(_), Ok(_)) => {
            let refusal = Refusal::Stopped(Cause::new(CauseKind::Parent));
            return Box::pin(ending::refused(cx, history, start, None, &refusal)).await;
        }
    };
    let mut turn = Turn {
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
        leftovers: Vec::new(),
        account: None,
        life: Arc::new(Life::new(cx.events.clone())),
        trace,
    };
    match turn.steps(&start.input).await {
        Ok(output) => turn.commit(output).await,
        // Boxed, as all that is rarely awaited: a run's task is as large as the largest of what it may wait for.
        Err(interrupt) => Box::pin(turn.end(interrupt)).await,
    }
}

/// Opens the turn's scope. `Err(Some(cause))`: a stop was first.
fn open_scope(
    cx: TurnCx<'_>,
    history: &History,
    start: &TurnStart,
    decision: &Arc<Decision>,
) -> Result<Scope, Option<Cause>> {
    use allstop_tools::BackgroundHost as _;
    let run = cx.run.map_err(|refused| refused.cause().cloned())?;
    let deadline = cx.parts.settings.deadlines.turn.map(|limit| Deadline {
        at: instant_after(Instant::now(), limit),
        stops: None,
        detail: format!("turn deadline of {limit:?}").into(),
        extent: Extent::Turn,
        bystanders: cx
            .background
            .map(|background| background.scope())
            .into_iter()
            .collect(),
    });
    let options = ScopeOptions {
        deadline,
        decision: Some(Arc::clone(decision)),
        placement: Placement::Shared,
        ..ScopeOptions::default()
    };
    let label = format!("session/{}/turn/{}", history.session_id(), start.turn);
    run.child(label, options)
        .map_err(|refused| refused.cause().cloned())
}

impl Turn<'_> {
    fn parts(&self) -> &Parts {
        self.cx.parts
    }

    fn now(&self) -> Timestamp {
        (self.cx.parts.now)()
    }

    /// Appends what is pending. A stop is heard while the store works; the append is then settled with the ending. What
    /// is not written is pending again: it has happened, and the ending tells it.
    async fn flush(&mut self) -> Result<(), Interrupt> {
        if let Some(background) = self.cx.background {
            self.pending
                .extend(background.take_records(self.draft.state().number()));
        }
        if !self.history.is_logged() {
            self.pending.clear();
            return Ok(());
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.pending);
        let appended = tokio::select! {
            biased;
            appended = self.history.append(records) => appended,
            () = self.scope.stopped() => Err(SessionError::Indeterminate),
        };
        let Err(error) = appended else { return Ok(()) };
        self.pending = self.history.take_unwritten();
        if self.scope.is_stopped() {
            self.engine.acknowledge();
            return Err(Interrupt::Stopped);
        }
        Err(Interrupt::Failed(error.into()))
    }

    fn hook_cx(&self, scope: &Scope) -> HookCx {
        HookCx {
            session_id: self.history.session_id().clone(),
            turn: self.draft.state().number(),
            scope: scope.clone(),
        }
    }

    /// Tells the hooks; a denial ends the turn.
    async fn hear_or_fail(&self, event: HookEvent) -> Result<(), Interrupt> {
        if self.parts().hooks.is_empty() {
            return Ok(());
        }
        let hook_cx = self.hook_cx(&self.work);
        match Box::pin(hook::tell(&self.parts().hooks, &hook_cx, &event)).await {
            Told::Continue => Ok(()),
            Told::Denied(message) => Err(Interrupt::Failed(TurnError {
                kind: TurnErrorKind::Hook,
                message,
                hint: None,
            })),
            Told::Stopped => {
                self.engine.acknowledge();
                Err(Interrupt::Stopped)
            }
        }
    }
}

/// The tool calls that a stop found running, as the receipt has them.
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
