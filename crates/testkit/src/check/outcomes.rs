//! Every message that was taken has one outcome, in one turn, and the log says the same (invariant 6).

use std::collections::BTreeMap;

use allstop_core::record::SessionRecord as R;
use allstop_core::{Message, MessageId, StopReason, TurnNumber};

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "one_outcome",
    invariant: Invariant::NoSecondEnding,
    class: FailureClass::StaleReply,
    needs: &[EvidenceKind::Records],
    check,
};

/// The turn of each message: the one that it caused, or that took it.
fn turns(records: &[R]) -> Result<BTreeMap<&MessageId, TurnNumber>, String> {
    let mut turns = BTreeMap::new();
    for record in records {
        if let R::TurnStarted {
            turn,
            message: Some(message),
            ..
        }
        | R::MessageSteered { turn, message, .. } = record
            && let Some(other) = turns.insert(message, *turn)
        {
            return Err(format!("{message} is in the turns {other} and {turn}"));
        }
    }
    Ok(turns)
}

fn check(observation: &RunObservation) -> Result<(), String> {
    let records = &observation.records_after_next;
    let turns = turns(records)?;
    let Some(session) = &observation.session else {
        return Ok(());
    };
    for sent in session.taken() {
        let Some(id) = &sent.id else { continue };
        let turn = turns.get(id).copied();
        let Some((_, outcome)) = &sent.outcome else {
            if sent.waiter_gone || observation.hung {
                continue;
            }
            return Err(format!("{id} was taken and came to nothing"));
        };
        if outcome.message.as_ref() != Some(id) {
            return Err(format!(
                "{id} was given the outcome of {:?}",
                outcome.message
            ));
        }
        if outcome.turn != turn {
            let said = outcome.turn;
            return Err(format!(
                "{id} is in {turn:?}, and its outcome says {said:?}"
            ));
        }
        if let Some(turn) = outcome.turn {
            ended_as(records, turn, outcome.stop_reason, &outcome.output)
                .map_err(|wrong| format!("{id}, turn {turn}: {wrong}"))?;
        } else if outcome.is_completed() {
            return Err(format!("{id} is said to be answered, without a turn"));
        }
    }
    Ok(())
}

/// The ending that the log has is what was said.
fn ended_as(
    records: &[R],
    turn: TurnNumber,
    reason: StopReason,
    output: &str,
) -> Result<(), String> {
    let ending = records.iter().find_map(|record| match record {
        R::TurnCommitted {
            turn: of, messages, ..
        } if *of == turn => {
            let last = messages.last().map(AsRef::as_ref);
            let said = match last {
                Some(Message::Assistant { text, .. }) => &**text,
                _ => "",
            };
            Some((StopReason::Completed, said))
        }
        R::TurnStopped {
            turn: of, reason, ..
        } if *of == turn => Some((*reason, "")),
        _ => None,
    });
    match ending {
        Some(ending) if ending == (reason, output) => Ok(()),
        ending => Err(format!(
            "it ended with {ending:?}, and {reason:?} {output:?} was told"
        )),
    }
}
