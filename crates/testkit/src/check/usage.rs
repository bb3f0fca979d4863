//! Token usage: all received usage is recorded, and no reservation of a budget stays open (invariant 11 in
//! `violation.rs`).

use allstop_core::receipt::ItemKind;
use allstop_core::record::{SessionRecord as R, StartedCallKind};
use allstop_core::{CauseKind, Usage};

use crate::observe::{ObservedWork, RunObservation};

/// Usage of the calls and of the background work in these records. The ledger of metered usage contains this sum.
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

pub(super) fn nothing_is_lost(run: &RunObservation) -> Result<(), String> {
    let (metered, delivered) = (metered(&run.records), run.delivered);
    if !has_lost_lease(run)
        && (metered.input_tokens < delivered.input_tokens
            || metered.output_tokens < delivered.output_tokens)
    {
        return Err(format!(
            "the model said {delivered:?}, the log says {metered:?}"
        ));
    }
    ledgers_agree(run, metered)
}

/// The usage in the session's ledgers and in the outcomes of the session's turns equals the usage in the log.
fn ledgers_agree(run: &RunObservation, metered: Usage) -> Result<(), String> {
    let reported = run.turns.iter().flatten().map(|turn| turn.usage);
    if let Some(reported) = reported.reduce(|sum, usage| sum + usage)
        && reported != metered
        && !has_lost_lease(run)
    {
        return Err(format!(
            "the outcomes say {reported:?}, the log says {metered:?}"
        ));
    }
    if let Some(state) = &run.state {
        if !has_lost_lease(run) && state.metered() != metered {
            let held = state.metered();
            return Err(format!(
                "the session says {held:?}, the log says {metered:?}"
            ));
        }
        let records = run.folded_records();
        let committed = records.iter().map(|record| match record {
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

pub(super) fn nothing_stays_reserved(run: &RunObservation) -> Result<(), String> {
    match run.reserved_tokens {
        0 => Ok(()),
        tokens => Err(format!("{tokens} tokens are still set aside")),
    }
}

pub(super) fn nothing_starts_beyond_the_budget(run: &RunObservation) -> Result<(), String> {
    calls_are_within_the_budget(run)?;
    no_model_call_starts_without_tokens(run)
}

/// True if another owner has taken over the session, so that this process does not write the rest of the usage.
fn has_lost_lease(run: &RunObservation) -> bool {
    let stop = run.disturbance();
    stop.is_some_and(|stop| stop.cause.kind == CauseKind::LeaseLost)
}

/// After the earlier calls have used all tokens of the budget, no model call starts.
fn no_model_call_starts_without_tokens(run: &RunObservation) -> Result<(), String> {
    let budget = run.settings.budget.as_ref();
    let Some(tokens_max) = budget.and_then(|budget| budget.limits().tokens_max) else {
        return Ok(());
    };
    let mut used = 0;
    for record in &run.records_after_next {
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

/// The number of tools that ran plus the number of started model calls does not exceed the budget of calls.
fn calls_are_within_the_budget(run: &RunObservation) -> Result<(), String> {
    let budget = run.settings.budget.as_ref();
    let Some(calls_max) = budget.and_then(|budget| budget.limits().calls_max) else {
        return Ok(());
    };
    let is_tool = |work: &&ObservedWork| work.kind == ItemKind::ToolCall;
    let tools = run.notes.work.iter().filter(is_tool).count();
    let is_model = |record: &&R| matches!(record, R::CallStarted { call, .. } if matches!(call.kind, StartedCallKind::Model { .. }));
    let models = run.records.iter().filter(is_model).count();
    let calls = (tools + models) as u64;
    if calls > calls_max {
        return Err(format!("{calls} calls ran, the budget has {calls_max}"));
    }
    Ok(())
}
