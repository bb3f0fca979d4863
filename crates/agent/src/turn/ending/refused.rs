//! The ending of a turn that never began.

use std::sync::Arc;

use allstop_core::receipt::ConversationEffect;
use allstop_core::record::SessionRecord;
use allstop_core::turn::{Refusal, TurnStart};
use allstop_core::{Extent, Receipt, Usage};
use allstop_scope::Scope;

use super::write::write;
use super::{bystanders, stop_policy};
use crate::error::TurnError;
use crate::history::History;
use crate::outcome::TurnOutcome;
use crate::turn::TurnCx;

/// The ending of a turn that was refused at its entry: nothing of it ran.
pub(in crate::turn) async fn refused(
    cx: TurnCx<'_>,
    history: &mut History,
    start: &TurnStart,
    scope: Option<&Scope>,
    refusal: &Refusal,
) -> TurnOutcome {
    let policy = stop_policy(cx, &refusal.cause());
    let records = refusal.records(start, policy);
    let kept = records.last().is_some_and(
        |ending| matches!(ending, SessionRecord::TurnStopped { kept, .. } if !kept.is_empty()),
    );
    let above = cx.run.unwrap_or(cx.above);
    let receipt = match above.account(Extent::Turn, bystanders(cx)) {
        Some(stop) => Some(stop.receipt().await),
        None => None,
    };
    let receipt = match receipt {
        Some(receipt) if kept => {
            let kept = ConversationEffect::KeptCompletedSteps;
            Some(Arc::new(Receipt::clone(&receipt).with_conversation(kept)))
        }
        other => other,
    };
    // What the log says goes with the outcome.
    let records = with_receipt(records, receipt.clone());
    let written = write(history, records, scope.unwrap_or(above)).await;
    let conversation = history.conversation();
    history.publish(Arc::clone(&conversation));
    TurnOutcome {
        turn: start.turn,
        stop_reason: refusal.reason(),
        cause: Some(refusal.cause()),
        output: "".into(),
        steps: 0,
        usage: Usage::default(),
        receipt,
        denials: Vec::new(),
        error: written.err().map(TurnError::from),
        conversation,
    }
}

fn with_receipt(
    mut records: Vec<SessionRecord>,
    found: Option<Arc<Receipt>>,
) -> Vec<SessionRecord> {
    if let Some(SessionRecord::TurnStopped { receipt, .. }) = records.last_mut() {
        *receipt = found;
    }
    records
}
