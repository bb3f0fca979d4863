//! Nothing of an answer is shown after its turn was superseded, stopped, or followed by another (invariant 6).

use allstop_agent::AgentEvent as E;
use allstop_core::{Extent, TurnNumber};
use allstop_session::{SessionEvent, SessionEventKind as K};

use super::superseded::superseder;
use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "stale_reply",
    invariant: Invariant::NoSecondEnding,
    class: FailureClass::StaleReply,
    needs: &[EvidenceKind::Session],
    check,
};

fn is_answer(event: &SessionEvent) -> bool {
    matches!(
        event.kind,
        K::Live(E::TextDelta { .. } | E::ReasoningDelta { .. } | E::StepAnswered { .. })
    )
}

fn check(observation: &RunObservation) -> Result<(), String> {
    let Some(session) = &observation.session else {
        return Ok(());
    };
    let mut newest = TurnNumber(0);
    let mut stopped = None;
    let mut stops = observation
        .stops
        .iter()
        .filter(|asked| {
            let answer = asked.answer.as_ref();
            !matches!(asked.extent, Extent::Call | Extent::Subtree)
                && answer.is_some_and(|answer| answer.receipt.outcome().is_none())
        })
        .peekable();
    for (order, event) in &session.events {
        while stops.next_if(|stop| stop.accepted < *order).is_some() {
            stopped = Some(newest);
        }
        if let K::Live(E::TurnStarted { turn, .. }) = &event.kind {
            newest = *turn;
        }
        // An ending that was on its way when the stop came is not undone by it.
        if let K::Live(E::TurnEnded { .. }) = &event.kind {
            stopped = None;
        }
        if !is_answer(event) {
            continue;
        }
        let turn = event.turn.unwrap_or(newest);
        if turn < newest {
            return Err(format!(
                "in turn {newest}, of turn {turn}: {:?}",
                event.kind
            ));
        }
        if stopped == Some(turn) && newest == turn {
            return Err(format!(
                "turn {turn} was stopped, and then: {:?}",
                event.kind
            ));
        }
        let of = session.taken().find(|sent| sent.id == event.message);
        if let Some(newer) = of.and_then(|sent| superseder(session, sent))
            && newer.order < *order
        {
            return Err(format!(
                "{:?} was superseded by {:?}, and then: {:?}",
                of.map(|sent| &sent.text),
                newer.text,
                event.kind
            ));
        }
    }
    Ok(())
}
