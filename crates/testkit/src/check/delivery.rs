//! No event is shown too late, and no piece of an answer is received too late.

use allstop_agent::AgentEvent as E;
use allstop_core::{Extent, TurnNumber};
use allstop_session::{SessionEvent, SessionEventKind as K};

use super::messages::superseder;
use crate::observe::{ObservedStop, RunObservation};

/// No event is shown too late (invariant 6 in `violation.rs`): no part of an answer after the stop, and no event of a
/// turn after the end of the turn.
pub(super) fn nothing_late_is_shown(run: &RunObservation) -> Result<(), String> {
    let accepted = run.disturbance().and_then(|stop| stop.accepted);
    let (mut running, mut heard) = (false, false);
    for (order, event) in &run.notes.events {
        let name = || format!("{event:?}");
        match event {
            E::TurnStarted { .. } if running => return Err("a turn starts in a turn".to_owned()),
            E::TurnStarted { .. } => (running, heard) = (true, false),
            _ if !running => return Err(format!("after the end of the turn: {}", name())),
            E::TurnEnded { .. } => running = false,
            E::StopHeard { .. } if heard => return Err("a stop is heard twice".to_owned()),
            E::StopHeard { .. } => heard = true,
            // A call that ended before the stop reached it still reports its result. The output of a command during its
            // stop is not part of an answer.
            E::ToolFinished { .. } | E::ToolOutput { .. } | E::ToolProgress { .. } => {}
            _ if heard => return Err(format!("after the stop was heard: {}", name())),
            E::TextDelta { .. } | E::ReasoningDelta { .. } | E::StepAnswered { .. }
                if accepted.is_some_and(|accepted| *order > accepted) =>
            {
                return Err(format!("after the stop was accepted: {}", name()));
            }
            _ => {}
        }
    }
    if running && !run.hung {
        return Err("a turn is shown to start and not to end".to_owned());
    }
    Ok(())
}

/// Number of pieces of an answer that may already have been sent, but not received, when the stop is accepted.
const ON_ITS_WAY_MAX: usize = 1;

/// After a stop, no more parts of a model's answer are received, because each received part costs money (invariant 11).
pub(super) fn nothing_late_is_received(run: &RunObservation) -> Result<(), String> {
    if run.nothing_to_do() {
        return Ok(());
    }
    let Some(accepted) = run.disturbance().and_then(|stop| stop.accepted) else {
        return Ok(());
    };
    let received = &run.notes.received;
    let late = received
        .iter()
        .filter(|at| (accepted..run.over).contains(at))
        .count();
    if late > ON_ITS_WAY_MAX {
        return Err(format!(
            "{late} pieces were received after the stop was accepted"
        ));
    }
    Ok(())
}

fn is_answer(event: &SessionEvent) -> bool {
    matches!(
        event.kind,
        K::Live(E::TextDelta { .. } | E::ReasoningDelta { .. } | E::StepAnswered { .. })
    )
}

/// No part of an answer is shown after its turn was superseded, stopped, or followed by another turn (invariant 6).
pub(super) fn nothing_stale_is_shown(run: &RunObservation) -> Result<(), String> {
    let Some(session) = &run.session else {
        return Ok(());
    };
    let mut newest = TurnNumber(0);
    let mut stopped = None;
    let is_whole = |stop: &&ObservedStop| !matches!(stop.extent, Extent::Call | Extent::Subtree);
    let stops = run.answers().map(|(stop, _)| stop);
    let mut stops = stops.filter(is_whole).peekable();
    for (order, event) in &session.events {
        while stops.next_if(|stop| stop.accepted < *order).is_some() {
            stopped = Some(newest);
        }
        if let K::Live(E::TurnStarted { turn, .. }) = &event.kind {
            newest = *turn;
        }
        // If the ending of the turn was already being written, a later stop does not undo the ending.
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
