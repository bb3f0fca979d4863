//! Every message that was taken comes to one thing, and the log says the same of it.

use allstop_core::record::SessionRecord as R;
use allstop_core::{Message, MessageId, StopReason, TurnNumber};

use super::{Checker, FailureClass, Invariant, Undisturbed, taken};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "one_outcome",
    invariant: Invariant::NoSecondEnding,
    class: FailureClass::StaleReply,
    check,
};

/// The turns that a message is in: the one that it caused, or that took it.
fn turns_of(records: &[R], id: &MessageId) -> Vec<TurnNumber> {
    let turns = records.iter().filter_map(|record| match record {
        R::TurnStarted { turn, message, .. } if message.as_ref() == Some(id) => Some(*turn),
        R::MessageSteered { turn, message, .. } if message == id => Some(*turn),
        _ => None,
    });
    turns.collect()
}

fn check(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    let Some(session) = &aftermath.session else {
        return Ok(());
    };
    let records = &aftermath.records_after_next;
    for sent in taken(session) {
        let Some(id) = &sent.id else { continue };
        let turns = turns_of(records, id);
        if turns.len() > 1 {
            return Err(format!("{id} is in the turns {turns:?}"));
        }
        let Some((_, outcome)) = &sent.outcome else {
            if sent.waiter_gone || aftermath.hung {
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
        if outcome.turn != turns.first().copied() {
            let said = outcome.turn;
            return Err(format!(
                "{id} is in {turns:?}, and its outcome says {said:?}"
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
