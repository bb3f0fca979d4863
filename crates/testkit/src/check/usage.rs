//! The bill: nothing that was received is lost, and nothing stays set aside.

use allstop_core::Usage;
use allstop_core::receipt::ItemKind;
use allstop_core::record::{SessionRecord as R, StartedCallKind};

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::{Aftermath, Lived};

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

pub(super) const OVERSPENT: Checker = Checker {
    name: "overspent",
    invariant: Invariant::NoLostBill,
    class: FailureClass::Overspent,
    check: nothing_starts_beyond_the_budget,
};

/// What the calls and the background work of these records used: the metered ledger.
pub fn metered(records: &[R]) -> Usage {
    let mut sum = Usage::default();
    for record in records {
        if let R::CallFinished {
            usage: Some(usage), ..
        }
        | R::BackgroundEnded {
            usage: Some(usage), ..
        }
        | R::Compacted { usage, .. }
        | R::Metered { usage, .. } = record
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

fn nothing_starts_beyond_the_budget(
    aftermath: &Aftermath,
    undisturbed: &Undisturbed,
) -> Result<(), String> {
    calls_are_within_the_budget(aftermath, undisturbed)?;
    no_model_call_starts_without_tokens(aftermath)
}

/// No model call starts once the calls before it have used all tokens of the budget.
fn no_model_call_starts_without_tokens(aftermath: &Aftermath) -> Result<(), String> {
    let budget = aftermath.settings.budget.as_ref();
    let Some(tokens_max) = budget.and_then(|budget| budget.limits().tokens_max) else {
        return Ok(());
    };
    let mut used = 0;
    for record in &aftermath.records_after_next {
        match record {
            R::CallFinished {
                usage: Some(usage), ..
            } => used += usage.input_tokens + usage.output_tokens,
            R::CallStarted { call, .. }
                if matches!(call.kind, StartedCallKind::Model { .. }) && used >= tokens_max =>
            {
                return Err(format!(
                    "model call {} starts, with {used} tokens used of {tokens_max}",
                    call.id
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// As many calls as the budget has, and no more: tools that ran, and model calls that were started.
fn calls_are_within_the_budget(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    let budget = aftermath.settings.budget.as_ref();
    let Some(calls_max) = budget.and_then(|budget| budget.limits().calls_max) else {
        return Ok(());
    };
    let is_tool = |lived: &&Lived| lived.kind == ItemKind::ToolCall;
    let tools = aftermath.lived.iter().filter(is_tool).count();
    let is_model = |record: &&R| matches!(record, R::CallStarted { call, .. } if matches!(call.kind, StartedCallKind::Model { .. }));
    let models = aftermath.records.iter().filter(is_model).count();
    let calls = (tools + models) as u64;
    if calls > calls_max {
        return Err(format!("{calls} calls ran, the budget has {calls_max}"));
    }
    Ok(())
}
