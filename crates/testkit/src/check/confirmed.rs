//! Outcomes of turns, receipts of stops and published conversations contain only claims that the log has confirmed
//! (invariant 3 in `violation.rs`).

use std::sync::Arc;

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_core::receipt::ConversationEffect;
use allstop_core::record::SessionRecord as R;
use allstop_core::turn::Conversation;
use allstop_core::{Extent, MessageId, Receipt, StopReason, TurnNumber};

use super::conversation_of;
use crate::observe::{NEXT_MESSAGE, Order, RunObservation};

/// Claim that an outcome makes about its turn, and the moment of the claim.
struct TurnClaim<'a> {
    turn: TurnNumber,
    message: Option<&'a MessageId>,
    reason: StopReason,
    error: Option<&'a TurnError>,
    /// True if the outcome claims that the store has confirmed whether the ending of the turn is written.
    is_ending_known: bool,
    receipt: Option<&'a Receipt>,
    at: Order,
}

/// Outcomes, receipts and published conversations contain only claims that the log has confirmed (invariant 3).
pub(super) fn claims_are_confirmed(run: &RunObservation) -> Result<(), String> {
    for turn in run.turns.iter().flatten() {
        let claim = TurnClaim {
            turn: turn.turn,
            message: None,
            reason: turn.stop_reason,
            error: turn.error.as_ref(),
            is_ending_known: turn.is_ending_known,
            receipt: turn.receipt.as_deref(),
            at: run.over,
        };
        outcome_is_true(run, &claim)
            .and_then(|()| conversation_is_true(run, &claim, &turn.conversation))
            .map_err(|wrong| format!("turn {}: {wrong}", turn.turn))?;
    }
    let sent = run.session.iter().flat_map(|session| &session.sent);
    for (at, outcome) in sent.filter_map(|sent| sent.outcome.as_ref()) {
        let Some(turn) = outcome.turn else { continue };
        let claim = TurnClaim {
            turn,
            message: outcome.message.as_ref(),
            reason: outcome.stop_reason,
            error: outcome.error.as_ref(),
            is_ending_known: outcome.is_ending_known,
            receipt: outcome.receipt.as_deref(),
            at: *at,
        };
        outcome_is_true(run, &claim)
            .and_then(|()| stops_are_true(run, &claim))
            .map_err(|wrong| format!("turn {turn}: {wrong}"))?;
    }
    Ok(())
}

/// The ending of the turn that a claim is about. If the store has written no record of a turn, the next turn gets the
/// number of that turn. Therefore the message identifies the turn.
fn ending_of<'a>(records: &'a [R], claim: &TurnClaim<'_>) -> Option<&'a R> {
    let start = start_of(records, claim)?;
    let ends = |record: &&R| matches!(record, R::TurnCommitted { turn, .. } | R::TurnStopped { turn, .. } if *turn == claim.turn);
    records.iter().skip(start).find(ends)
}

/// Index of the record that begins the turn.
fn start_of(records: &[R], claim: &TurnClaim<'_>) -> Option<usize> {
    records.iter().position(|record| match record {
        R::TurnStarted {
            turn,
            input,
            message,
            ..
        } => {
            let is_its = claim.message.is_none() || message.as_ref() == claim.message;
            *turn == claim.turn && &**input != NEXT_MESSAGE && is_its
        }
        R::MessageSteered { turn, message, .. } => {
            *turn == claim.turn && Some(message) == claim.message
        }
        _ => false,
    })
}

fn is_commit(ending: Option<&R>) -> bool {
    matches!(ending, Some(R::TurnCommitted { .. }))
}

/// Effect on the conversation, if the turn has not ended with a commit.
fn effect_of(ending: Option<&R>) -> ConversationEffect {
    match ending {
        Some(R::TurnStopped { kept, .. }) if !kept.is_empty() => {
            ConversationEffect::KeptCompletedSteps
        }
        _ => ConversationEffect::Unchanged,
    }
}

/// The records that the store had confirmed at this moment.
fn confirmed(run: &RunObservation, at: Order) -> &[R] {
    let records = run.records_after_next.as_slice();
    let durable = run.notes.durable(at).max(run.records_before);
    records.get(..durable).unwrap_or(records)
}

fn outcome_is_true(run: &RunObservation, claim: &TurnClaim<'_>) -> Result<(), String> {
    let in_the_end = ending_of(&run.records_after_next, claim);
    if claim.reason == StopReason::Completed {
        return if is_commit(ending_of(confirmed(run, claim.at), claim)) {
            Ok(())
        } else {
            Err(format!(
                "completed, and the store had not confirmed that: {in_the_end:?}"
            ))
        };
    }
    let says_unknown = claim.reason == StopReason::Error
        && claim.error.map(|error| error.kind) == Some(TurnErrorKind::Store)
        && !claim.is_ending_known;
    if is_commit(in_the_end) && !says_unknown {
        let reason = claim.reason.as_str();
        return Err(format!(
            "it ended with {reason}, and the log has its commit"
        ));
    }
    match claim.receipt.filter(|receipt| receipt.outcome().is_none()) {
        Some(receipt) => effect_is_true(run, claim, receipt.conversation(), claim.at),
        None => Ok(()),
    }
}

/// A receipt reports the effect on the conversation that the log finally has, or reports that this effect is not known
/// yet.
fn effect_is_true(
    run: &RunObservation,
    claim: &TurnClaim<'_>,
    said: ConversationEffect,
    at: Order,
) -> Result<(), String> {
    let in_the_end = ending_of(&run.records_after_next, claim);
    let then = ending_of(confirmed(run, at), claim);
    match said {
        ConversationEffect::Unknown if then.is_some() => Err(
            "the receipt does not know the conversation, and its ending was confirmed".to_owned(),
        ),
        ConversationEffect::Unknown => Ok(()),
        ConversationEffect::KeptCompletedSteps if then.is_none() => {
            Err("the receipt says that steps are kept, and nothing was confirmed".to_owned())
        }
        said if is_commit(in_the_end) || said != effect_of(in_the_end) => Err(format!(
            "the receipt says {said:?} of the conversation, the log {in_the_end:?}"
        )),
        _ => Ok(()),
    }
}

/// If the store has confirmed the ending of the turn, the published conversation is the conversation after the turn.
/// Otherwise the published conversation is the conversation before the turn.
fn conversation_is_true(
    run: &RunObservation,
    claim: &TurnClaim<'_>,
    published: &Arc<Conversation>,
) -> Result<(), String> {
    let records = run.records_after_next.as_slice();
    let before = start_of(records, claim).unwrap_or(run.records.len());
    let is_next = |record: &R| matches!(record, R::TurnStarted { turn, .. } if *turn > claim.turn);
    let after = records.iter().position(is_next).unwrap_or(records.len());
    let after = after.min(run.records.len()).max(before);
    let until = if claim.is_ending_known { after } else { before };
    let (until, _) = records.split_at(until);
    if published.messages == conversation_of(until) {
        return Ok(());
    }
    Err(format!(
        "{} messages are published, and the log has {}",
        published.messages.len(),
        conversation_of(until).len()
    ))
}

/// Checks the receipts of the session's stops that stopped this turn. A receipt is about this turn if it has the stop
/// id of the receipt in the outcome.
fn stops_are_true(run: &RunObservation, claim: &TurnClaim<'_>) -> Result<(), String> {
    let Some(own) = claim.receipt else {
        return Ok(());
    };
    for (asked, answer) in run.answers() {
        let receipt = &answer.receipt;
        if asked.extent == Extent::Turn && receipt.stop_id() == own.stop_id() {
            effect_is_true(run, claim, receipt.conversation(), answer.order)
                .map_err(|wrong| format!("its stop: {wrong}"))?;
        }
    }
    Ok(())
}
