//! The bill: nothing that was received is lost, and nothing stays set aside.

use allstop_core::Usage;
use allstop_core::record::SessionRecord as R;

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const METERED: Checker = Checker {
    name: "usage",
    invariant: Invariant::NoLostBill,
    class: FailureClass::LostBill,
    check: nothing_is_lost,
};

pub(super) const RESERVED: Checker = Checker {
    name: "budget",
    invariant: Invariant::NoLostBill,
    class: FailureClass::Overspent,
    check: nothing_stays_reserved,
};

/// What the calls of these records used: the metered ledger.
pub fn metered(records: &[R]) -> Usage {
    let mut sum = Usage::default();
    for record in records {
        if let R::CallFinished {
            usage: Some(usage), ..
        } = record
        {
            sum += *usage;
        }
    }
    sum
}

fn nothing_is_lost(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    let (metered, delivered) = (metered(&aftermath.records), aftermath.delivered);
    let after_a_lost_lease = aftermath
        .disturbance()
        .is_some_and(|stop| stop.cause.kind == allstop_core::CauseKind::LeaseLost);
    if !after_a_lost_lease
        && (metered.input_tokens < delivered.input_tokens
            || metered.output_tokens < delivered.output_tokens)
    {
        return Err(format!(
            "the model said {delivered:?}, the log says {metered:?}"
        ));
    }
    if let Some(state) = &aftermath.state {
        let committed = aftermath.records.iter().map(|record| match record {
            R::TurnCommitted { usage, .. } | R::TurnStopped { usage, .. } => *usage,
            _ => Usage::default(),
        });
        let committed = committed.fold(Usage::default(), |sum, usage| sum + usage);
        let ledger = state.conversation().usage;
        if (ledger.input_tokens, ledger.output_tokens)
            != (committed.input_tokens, committed.output_tokens)
        {
            return Err(format!(
                "committed {ledger:?}, the endings say {committed:?}"
            ));
        }
    }
    Ok(())
}

fn nothing_stays_reserved(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    match aftermath.reserved_tokens {
        0 => Ok(()),
        tokens => Err(format!("{tokens} tokens are still set aside")),
    }
}
