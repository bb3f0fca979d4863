//! One turn: a model call, then its parallel tools, then the next step. At the end the turn is committed, or a stop
//! ends it.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{AgentEvent, TurnOutcome};
use allstop_core::decision::CommitDecision;
use allstop_core::record::{SessionRecord, StartedCall, StartedCallKind};
use allstop_core::turn::{BudgetExceeded, Reservation};
use allstop_core::{
    CallId, Cause, CauseKind, Message, StopReason, Timestamp, ToolCall, ToolResult, TurnNumber,
    Usage,
};
use allstop_scope::{EngineGuard, PartReceipt, Scope, ScopeOptions};

use super::journal::{Journal, Unwritten};
use super::{Cx, ending};
use crate::bug::Bug;

/// Time that the store has for the ending of a stopped turn.
const ENDING_MAX: Duration = Duration::from_millis(500);

/// The time of all records. The code of this engine does not depend on the time.
pub(super) fn now() -> Timestamp {
    Timestamp::from_unix_ms(0)
}

/// Reason why the steps of the turn gave no answer.
pub(super) enum Interrupt {
    /// A stop covers the turn.
    Stopped,
    /// The turn ends itself with this cause.
    Own(Cause),
}

impl From<BudgetExceeded> for Interrupt {
    fn from(exceeded: BudgetExceeded) -> Self {
        Self::Own(Cause::new(CauseKind::Budget).detail(exceeded.to_string()))
    }
}

/// The step whose tools run. The step contains the model's text and calls, and a slot for the result of each call.
pub(super) struct OpenStep {
    pub(super) text: Arc<str>,
    pub(super) calls: Vec<ToolCall>,
    pub(super) results: Vec<Option<ToolResult>>,
}

impl OpenStep {
    pub(super) fn new(text: Arc<str>, calls: Vec<ToolCall>) -> Self {
        let results = vec![None; calls.len()];
        Self {
            text,
            calls,
            results,
        }
    }
}

pub(super) struct Turn<'a> {
    pub(super) cx: &'a Cx,
    pub(super) journal: &'a mut Journal,
    pub(super) number: TurnNumber,
    pub(super) scope: Scope,
    pub(super) engine: EngineGuard,
    decision: Arc<CommitDecision>,
    /// Records for the next append.
    pub(super) pending: Vec<SessionRecord>,
    /// The user's message and the completed steps.
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) step: Option<OpenStep>,
    pub(super) steps: u32,
    /// Record that [`Bug::BillAtTheEnd`] has not written yet.
    pub(super) bill: Option<SessionRecord>,
    /// Calls that have started but not ended.
    pub(super) open: Vec<CallId>,
    pub(super) answered: Usage,
    pub(super) metered: Usage,
    pub(super) account: Option<Arc<PartReceipt>>,
}

/// Runs one turn until its only ending.
pub(super) async fn run(cx: &Cx, journal: &mut Journal, input: Arc<str>) -> TurnOutcome {
    let number = journal.next_turn();
    cx.events.send(|| AgentEvent::TurnStarted {
        session_id: journal.session().id().clone(),
        turn: number,
    });
    let decision = Arc::new(CommitDecision::new());
    let started = SessionRecord::TurnStarted {
        turn: number,
        at: now(),
        input: Arc::clone(&input),
        images: Vec::new(),
        owner: None,
        message: None,
        origin: allstop_core::record::TurnOrigin::User,
        reported: Vec::new(),
    };
    let outcome = match open_scope(cx, number, &decision) {
        Err(cause) => ending::refused(cx, journal, number, started, cause).await,
        Ok(scope) => {
            let turn = Turn {
                cx,
                journal,
                number,
                engine: scope.attach_engine(),
                scope,
                decision,
                pending: vec![started],
                messages: vec![Arc::new(Message::user(input))],
                step: None,
                steps: 0,
                bill: None,
                open: Vec::new(),
                answered: Usage::default(),
                metered: Usage::default(),
                account: None,
            };
            turn.run().await
        }
    };
    cx.events.send(|| AgentEvent::TurnEnded {
        turn: number,
        stop_reason: outcome.stop_reason,
        cause: outcome.cause.clone(),
        usage: outcome.usage,
        unfinished: Vec::new(),
        lost: None,
    });
    outcome
}

/// Opens the scope of the turn below the scope of the run. If a stop came before, returns the cause of this stop.
fn open_scope(cx: &Cx, number: TurnNumber, decision: &Arc<CommitDecision>) -> Result<Scope, Cause> {
    let label = format!("session/explored/turn/{number}");
    let options = || ScopeOptions::default().decision(Arc::clone(decision));
    let below = |scope: &Scope| scope.child(label.as_str(), options());
    let opened = match &cx.run {
        Ok(run) => below(run),
        Err(refused) => Err(refused.clone()),
    };
    let opened = match opened {
        Err(_) if cx.has(Bug::StopBeforeStart) => below(&cx.session),
        opened => opened,
    };
    opened.map_err(|refused| match refused.cause() {
        Some(cause) => cause.clone(),
        None => Cause::new(CauseKind::Parent),
    })
}

impl Turn<'_> {
    pub(super) fn has(&self, bug: Bug) -> bool {
        self.cx.has(bug)
    }

    async fn run(mut self) -> TurnOutcome {
        match self.run_steps().await {
            Ok(output) => self.commit(output).await,
            Err(why) => self.end(why).await,
        }
    }

    async fn run_steps(&mut self) -> Result<Arc<str>, Interrupt> {
        loop {
            self.check_stop()?;
            let (text, calls) = self.call_model().await?;
            if calls.is_empty() {
                let text_again = Arc::clone(&text);
                self.messages.push(Arc::new(Message::Assistant {
                    text,
                    tool_calls: Vec::new(),
                }));
                self.check_stop()?;
                return Ok(text_again);
            }
            self.step = Some(OpenStep::new(text, calls));
            self.check_stop()?;
            self.run_calls().await?;
        }
    }

    pub(super) fn check_stop(&self) -> Result<(), Interrupt> {
        if self.scope.is_stopped() {
            return Err(Interrupt::Stopped);
        }
        Ok(())
    }

    /// Reserves this number of tokens for a call, if the run has a budget.
    pub(super) fn reserve(&self, tokens: u64) -> Result<Option<Reservation>, Interrupt> {
        Ok(match &self.cx.parts.settings.budget {
            Some(budget) => Some(budget.reserve(tokens)?),
            None => None,
        })
    }

    /// Adds the record of a call's start to the pending records.
    pub(super) fn note_start(&mut self, id: &CallId, name: &str, kind: StartedCallKind) {
        self.open.push(id.clone());
        self.pending.push(SessionRecord::CallStarted {
            turn: self.number,
            call: StartedCall {
                id: id.clone(),
                name: name.into(),
                kind,
            },
            at: now(),
        });
    }

    /// Makes the pending records durable. A stop interrupts the wait.
    pub(super) async fn flush(&mut self) -> Result<(), Interrupt> {
        let records = std::mem::take(&mut self.pending);
        let written = tokio::select! {
            biased;
            written = self.journal.append(records) => written,
            () = self.scope.stopped() => Err(Unwritten::MayBe),
        };
        if written.is_ok() {
            return Ok(());
        }
        self.pending = self.journal.take_refused_records();
        self.check_stop()?;
        Err(Interrupt::Own(Cause::new(CauseKind::Failure)))
    }

    /// Makes the pending records durable together with the ending. If the turn was stopped, the store has only limited
    /// time for this.
    pub(super) async fn write_ending(&mut self) -> Result<(), Unwritten> {
        let records = std::mem::take(&mut self.pending);
        let patience = async {
            self.scope.stopped().await;
            tokio::time::sleep(ENDING_MAX).await;
        };
        tokio::select! {
            biased;
            written = self.journal.append(records) => written,
            () = patience => Err(Unwritten::MayBe),
        }
    }

    /// Commits the turn, unless a stop comes first.
    async fn commit(mut self, output: Arc<str>) -> TurnOutcome {
        let decided = if self.has(Bug::CommitBesideStop) {
            // The seeded bug: the engine checks for a stop before the wait, and commits after the wait.
            let stopped = self.scope.is_stopped();
            let _looked_before = self.flush().await;
            !stopped
        } else {
            self.decision.commit().is_ok()
        };
        if !decided {
            return self.end(Interrupt::Stopped).await;
        }
        self.pending.push(SessionRecord::TurnCommitted {
            turn: self.number,
            at: now(),
            messages: std::mem::take(&mut self.messages),
            usage: self.answered,
        });
        let written = self.write_ending().await;
        self.scope.close();
        match written {
            Err(unwritten) if !self.has(Bug::PublishedUnwritten) => {
                let cause = Some(Cause::new(CauseKind::Failure));
                let outcome = self.outcome(StopReason::Error, cause, "".into(), None);
                ending::not_written(outcome, unwritten)
            }
            _ => self.outcome(StopReason::Completed, None, output, None),
        }
    }
}
