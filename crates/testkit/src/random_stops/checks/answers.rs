//! What the answers to stops say, and what the world was like then.

use allstop_core::Extent;
use allstop_core::receipt::ItemKind;

use crate::random_stops::answer::{ANSWERED_WITHIN, Answered};
use crate::random_stops::place::BACKGROUND;
use crate::random_stops::round::Left;

pub(super) fn everybody_is_answered(left: &Left) -> Result<(), String> {
    if left.hung {
        return Err("it does not end".to_owned());
    }
    for Answered {
        extent,
        took,
        receipt,
        ..
    } in &left.answers
    {
        if receipt.is_none() {
            return Err(format!("a stop of the {extent} has no answer"));
        }
        if *took > ANSWERED_WITHIN {
            return Err(format!(
                "a stop of the {extent} was answered after {took:?}"
            ));
        }
    }
    Ok(())
}

/// What a quiet receipt covers does not run, as the operating system says; what it leaves alone is named.
pub(super) fn receipts_are_true(left: &Left) -> Result<(), String> {
    for answer in &left.answers {
        let Some(receipt) = &answer.receipt else {
            continue;
        };
        let names_background = receipt
            .items()
            .iter()
            .any(|item| item.kind == ItemKind::Background && item.state.breaks_quiet());
        let is_let_alone = |line: &&String| {
            answer.extent == Extent::Turn && names_background && line.contains(BACKGROUND)
        };
        // Of what had ended before it was asked a stop says nothing.
        let says_quiet = receipt.quiet() && receipt.outcome().is_none();
        let mut running = answer.running.iter().filter(|line| !is_let_alone(line));
        if says_quiet && let Some(line) = running.next() {
            return Err(format!(
                "the receipt of the {} says quiet while this runs: {line}",
                answer.extent
            ));
        }
        if !receipt.quiet() && receipt.outcome().is_none() && answer.running.is_empty() {
            return Err(format!(
                "nothing runs, and the receipt is not quiet: {:?}",
                receipt.items()
            ));
        }
    }
    Ok(())
}

/// A model call that a receipt calls stopped has no connection any more, as the server sees it.
pub(super) fn stopped_calls_are_closed(left: &Left) -> Result<(), String> {
    match left.answers.iter().find(|answer| answer.connections > 0) {
        Some(answer) => Err(format!(
            "a model call is stopped, and {} connections are open",
            answer.connections
        )),
        None => Ok(()),
    }
}
