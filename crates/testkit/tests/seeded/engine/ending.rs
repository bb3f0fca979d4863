//! The ending of a turn by a stop: the account (the turn's part of the stop's receipt), the kept messages, and the only
//! record of the ending.

use std::process::Command;
use std::sync::Arc;

use allstop_agent::{AgentEvent, TurnError, TurnErrorKind, TurnOutcome};
use allstop_core::receipt::{ConversationEffect, Receipt};
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::turn::StopPolicy;
use allstop_core::{Cause, CauseKind, Extent, Message, StopReason, ToolResult, TurnNumber, Usage};
use allstop_scope::{PartReceipt, StopRequest};
use allstop_tools::BackgroundHost as _;

use super::Cx;
use super::journal::{Journal, Unwritten};
use super::turn::{Interrupt, Turn, now};
use crate::bug::Bug;

impl Turn<'_> {
    /// The account of the stop that covers the turn. The account is created only once, while the work that it must list
    /// still exists.
    pub(super) fn account(&mut self, own: Option<Cause>) -> Option<Arc<PartReceipt>> {
        if self.account.is_none() {
            let cause = self.scope.cause().or(own)?;
            let heard = cause.clone();
            self.cx
                .events
                .send(|| AgentEvent::StopHeard { cause: heard });
            let bystanders = self.cx.bystanders();
            if !self.scope.is_stopped() {
                let mut order = StopRequest::new(Extent::Turn, cause);
                order.bystanders.clone_from(&bystanders);
                drop(self.scope.stop(order));
            }
            self.account = self.scope.account(Extent::Turn, bystanders).map(Arc::new);
        }
        self.account.clone()
    }

    /// Acknowledges the stop on behalf of the engine.
    pub(super) fn acknowledge(&self) {
        if !self.has(Bug::NeverAcknowledges) {
            self.engine.acknowledge();
        }
    }

    pub(super) async fn end(mut self, why: Interrupt) -> TurnOutcome {
        let own = match why {
            Interrupt::Stopped => None,
            Interrupt::Own(cause) => Some(cause),
        };
        let account = self.account(own.clone());
        self.acknowledge();
        if self.has(Bug::ForgottenProcess) {
            // The seeded bug: a helper process does some cleaning, and no code waits for this process.
            let helper = Command::new("sleep").arg("600").spawn();
            drop(helper.expect("sleep is there"));
        }
        if self.has(Bug::BackgroundKilled)
            && let Some(background) = &self.cx.background
        {
            // The seeded bug: in order to leave no work, the engine also stops background work.
            let cause = Cause::new(CauseKind::Parent);
            let order = StopRequest::new(Extent::TurnAndBackground, cause);
            drop(background.scope().stop(order).receipt().await);
        }
        let receipt = match account {
            Some(account) => Some(account.receipt().await),
            None => None,
        };
        let cause = self.cause(own);
        let reason = reason_of(&cause);
        let kept = self.kept(&cause);
        let usage = if kept.is_empty() {
            Usage::default()
        } else {
            self.answered
        };
        let receipt = receipt.map(|receipt| {
            let effect = if kept.is_empty() {
                ConversationEffect::Unchanged
            } else {
                ConversationEffect::KeptCompletedSteps
            };
            let receipt = Receipt::clone(&receipt).with_conversation(effect);
            Arc::new(receipt.with_usage(self.metered))
        });
        self.pending.extend(self.bill.take());
        let ends = std::mem::take(&mut self.open);
        let mut ends: Vec<_> = ends
            .into_iter()
            .map(|id| SessionRecord::CallFinished {
                turn: self.number,
                id,
                outcome: CallOutcome::Unknown,
                usage: None,
                finish: None,
                exit_code: None,
                result: None,
            })
            .collect();
        let ending = SessionRecord::TurnStopped {
            turn: self.number,
            at: now(),
            reason,
            cause: cause.clone(),
            receipt: receipt.clone(),
            kept,
            usage,
        };
        if self.has(Bug::AppendAfterEnding) {
            self.pending.push(ending);
            self.pending.append(&mut ends);
        } else {
            self.pending.append(&mut ends);
            self.pending.push(ending);
        }
        // After a lost lease (right to write), another owner has the stream, so the ending is not written.
        let nobody_reads_it = self.has(Bug::NoEnding) && cause.kind == CauseKind::Disconnect;
        let written = if cause.kind != CauseKind::LeaseLost && !nobody_reads_it {
            self.write_ending().await
        } else {
            Ok(())
        };
        self.scope.close();
        // The seeded bug: an ending that is possibly not written counts as no change of the conversation.
        let may_be = written == Err(Unwritten::MayBe) && !self.has(Bug::UnknownIsUnchanged);
        let receipt = match (receipt, written) {
            (Some(receipt), Err(_)) => {
                let effect = if may_be && receipt.conversation() != ConversationEffect::Unchanged {
                    ConversationEffect::Unknown
                } else {
                    ConversationEffect::Unchanged
                };
                Some(Arc::new(Receipt::clone(&receipt).with_conversation(effect)))
            }
            (receipt, _) => receipt,
        };
        let outcome = self.outcome(reason, Some(cause), "".into(), receipt);
        match written {
            Ok(()) => outcome,
            Err(_) if may_be => not_written(outcome, Unwritten::MayBe),
            Err(_) => not_written(outcome, Unwritten::Refused),
        }
    }

    /// The cause of the first stop.
    fn cause(&self, own: Option<Cause>) -> Cause {
        let newest = self.cx.session.cause();
        let first = self.scope.cause();
        let cause = if self.has(Bug::CauseOverwritten) {
            newest.or(first)
        } else {
            first
        };
        cause.or(own).unwrap_or(Cause::new(CauseKind::Parent))
    }

    /// Messages of the turn that the stop policy keeps.
    fn kept(&mut self, cause: &Cause) -> Vec<Arc<Message>> {
        let policy = self.cx.parts.settings.stop_policy;
        let forbidden = matches!(cause.kind, CauseKind::Guardrail | CauseKind::LeaseLost);
        if self.has(Bug::HalfTurnLeft) && !forbidden {
            return self.messages.iter().take(1).cloned().collect();
        }
        if policy == StopPolicy::Rollback || forbidden {
            return Vec::new();
        }
        let mut kept = std::mem::take(&mut self.messages);
        if let Some(step) = self.step.take() {
            let calls = step.calls.clone();
            kept.push(Arc::new(Message::Assistant {
                text: step.text,
                tool_calls: step.calls,
            }));
            for (call, result) in calls.into_iter().zip(step.results) {
                let missing = || ToolResult {
                    call_id: call.id,
                    content: "stopped without a result".into(),
                    is_error: true,
                    images: allstop_core::Images::default(),
                };
                let result = if self.has(Bug::MissingResult) {
                    result
                } else {
                    Some(result.unwrap_or_else(missing))
                };
                kept.extend(result.map(|result| Arc::new(Message::Tool(result))));
            }
        }
        let text = format!("stopped here ({cause})").into();
        kept.push(Arc::new(Message::StopMarker { text }));
        kept
    }

    pub(super) fn outcome(
        self,
        stop_reason: StopReason,
        cause: Option<Cause>,
        output: Arc<str>,
        receipt: Option<Arc<Receipt>>,
    ) -> TurnOutcome {
        TurnOutcome {
            turn: self.number,
            stop_reason,
            cause,
            output,
            steps: self.steps,
            usage: self.metered,
            receipt,
            denials: Vec::new(),
            error: None,
            conversation: Arc::clone(self.journal.conversation()),
            is_ending_known: true,
            is_ending_written: true,
            lost: None,
            summary: None,
            finish: None,
        }
    }
}

/// The ending of a turn that was stopped before it began.
pub(super) async fn refused(
    cx: &Cx,
    journal: &mut Journal,
    number: TurnNumber,
    started: SessionRecord,
    cause: Cause,
) -> TurnOutcome {
    let account = cx.run.as_ref().ok();
    let receipt = match account.and_then(|run| run.account(Extent::Turn, cx.bystanders())) {
        Some(account) => Some(account.receipt().await),
        None => None,
    };
    let reason = reason_of(&cause);
    let mut written = Ok(());
    if cause.kind != CauseKind::LeaseLost {
        let ending = SessionRecord::TurnStopped {
            turn: number,
            at: now(),
            reason,
            cause: cause.clone(),
            receipt: None,
            kept: Vec::new(),
            usage: Usage::default(),
        };
        written = journal.append(vec![started, ending]).await;
    }
    let outcome = TurnOutcome {
        turn: number,
        stop_reason: reason,
        cause: Some(cause),
        output: "".into(),
        steps: 0,
        usage: Usage::default(),
        receipt,
        denials: Vec::new(),
        error: None,
        conversation: Arc::clone(journal.conversation()),
        is_ending_known: true,
        is_ending_written: true,
        lost: None,
        summary: None,
        finish: None,
    };
    match written {
        Ok(()) => outcome,
        Err(unwritten) => not_written(outcome, unwritten),
    }
}

/// The outcome of a turn whose ending is not written, or is not known to be written.
pub(super) fn not_written(outcome: TurnOutcome, unwritten: Unwritten) -> TurnOutcome {
    TurnOutcome {
        error: Some(TurnError {
            kind: TurnErrorKind::Store,
            message: "the ending is not written".to_owned(),
            hint: None,
        }),
        is_ending_known: unwritten == Unwritten::Refused,
        is_ending_written: false,
        ..outcome
    }
}

fn reason_of(cause: &Cause) -> StopReason {
    cause.kind.stop_reason().unwrap_or(StopReason::Error)
}
