//! Recovery: creates the records that end a turn after a crash of its process, with a receipt of its calls.

use std::sync::Arc;

use crate::call_label::call_label;
use crate::cause::{CRASH, Cause, CauseKind};
use crate::extent::Extent;
use crate::ids::StopId;
use crate::receipt::{
    ConversationEffect, EndMethod, ItemKind, ItemState, Receipt, ReceiptItem, StopInfo,
};
use crate::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::turn::effects::CallEffect;
use crate::turn::session_state::SessionState;
use crate::turn::stop::stop_marker;
use crate::usage::Usage;

impl SessionState {
    /// Records to append after a crash: first an end with an unknown outcome for each open call, then the ending of the
    /// turn. Empty if the last turn has its ending.
    ///
    /// The messages of the turn's [`MessagesKept`](SessionRecord::MessagesKept) records stay in the conversation, with a
    /// marker. A turn without such records, as under the policy `rollback`, leaves no messages.
    pub fn recovery_records(&self, at: Timestamp) -> Vec<SessionRecord> {
        let Some(open) = self.open_turn() else {
            return Vec::new();
        };
        let turn = open.number();
        let receipt = self.crash_receipt();
        let ends = open
            .open_calls()
            .iter()
            .map(|call| SessionRecord::CallFinished {
                turn,
                id: call.id.clone(),
                outcome: CallOutcome::Unknown,
                usage: None,
                finish: None,
                exit_code: None,
                result: None,
            });
        let cause = Cause::new(CauseKind::Failure).detail(CRASH);
        let mut kept = self.open_kept.clone();
        let usage = if kept.is_empty() {
            Usage::default()
        } else {
            kept.push(stop_marker(&cause, None));
            open.metered()
        };
        let ending = SessionRecord::TurnStopped {
            turn,
            at,
            reason: StopReason::Error,
            cause,
            receipt: receipt.map(Arc::new),
            kept,
            usage,
        };
        ends.chain([ending]).collect()
    }

    /// Receipt of the turn that a crash has cut off. It lists the calls that were running, and the ended calls that may
    /// have changed something. `None` if the last turn has its ending, or if the log has the receipt of a stop of this
    /// turn. The caller must make sure that the turn does not run any more.
    ///
    /// The time of the request is the time of the last record that the process wrote for the turn.
    pub fn crash_receipt(&self) -> Option<Receipt> {
        let open = self.open_turn()?;
        let started_at = self.turns().last()?.started_at;
        let is_of_turn = |receipt: &&Arc<Receipt>| {
            let request = receipt.request();
            request.extent != Extent::Call && request.requested_at > started_at
        };
        if self
            .last_receipt()
            .is_some_and(|receipt| is_of_turn(&receipt))
        {
            return None;
        }
        let turn = open.number();
        let id = self.session_id()?;
        let request = StopInfo {
            stop_id: StopId::new(format!("{id}-crash-{turn}")),
            target: format!("session/{id}/turn/{turn}").into(),
            extent: Extent::Turn,
            cause: Cause::new(CauseKind::Failure).detail(CRASH),
            requested_at: self.open_at?,
        };
        let effects = open.effects();
        let without_effect = |call: &&StartedCall| !effects.has(&call.id);
        // If a crash has interrupted an earlier recovery, some calls have their end with an unknown outcome already.
        let running = open.unknown_calls().iter().chain(open.open_calls());
        let running = running.filter(without_effect);
        let items = running.map(item_of_running);
        let items = items.chain(effects.calls.iter().map(item_of_effect));
        let conversation = if self.open_kept.is_empty() {
            ConversationEffect::Unchanged
        } else {
            ConversationEffect::KeptCompletedSteps
        };
        let receipt = Receipt::of_crash(request, items.collect());
        let receipt = receipt.with_conversation(conversation);
        Some(receipt.with_usage(open.metered()))
    }
}

/// The item of a call that was running when its process died, and that changes nothing.
fn item_of_running(call: &StartedCall) -> ReceiptItem {
    let (kind, label, effect) = match &call.kind {
        StartedCallKind::Model { .. } => (ItemKind::ModelCall, None, None),
        StartedCallKind::Tool { arguments, effect } => {
            (ItemKind::ToolCall, call_label(arguments), Some(*effect))
        }
    };
    let (id, name): (Arc<str>, _) = (call.id.as_str().into(), Arc::clone(&call.name));
    ReceiptItem {
        label,
        effect,
        ..ReceiptItem::new(kind, id, name, UNKNOWN)
    }
}

/// The item of a call that may have changed something. A call that has started a command in the background is finished,
/// because it has a result; the note names the command, whose outcome is unknown.
fn item_of_effect(call: &CallEffect) -> ReceiptItem {
    let is_unknown = matches!(call.outcome, None | Some(CallOutcome::Unknown));
    let state = if is_unknown {
        UNKNOWN
    } else {
        ItemState::Finished { after_ms: None }
    };
    let (id, name): (Arc<str>, _) = (call.id.as_str().into(), Arc::clone(&call.name));
    let note = match (is_unknown, call.is_outcome_unknown()) {
        (true, _) if call.is_uncertain() => Some("may have completed; check before repeating"),
        (false, true) => Some("started in the background; the outcome of the work is unknown"),
        _ => None,
    };
    ReceiptItem {
        label: call.label.clone(),
        effect: is_unknown.then_some(call.effect),
        note: note.map(Into::into),
        ..ReceiptItem::new(ItemKind::ToolCall, id, name, state)
    }
}

const UNKNOWN: ItemState = ItemState::Unknown {
    how: EndMethod::OwnerDied,
    after_ms: None,
};
