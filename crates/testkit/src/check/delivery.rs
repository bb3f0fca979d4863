//! Nothing is shown after its time (invariant 6): nothing of an answer after the stop, nor of a turn after its ending.

use allstop_agent::AgentEvent as E;

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "delivery",
    invariant: Invariant::NoSecondEnding,
    class: FailureClass::StaleReply,
    needs: &[EvidenceKind::Witness],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let accepted = observation.disturbance().and_then(|stop| stop.accepted);
    let (mut running, mut heard) = (false, false);
    for (order, event) in &observation.events {
        let name = || format!("{event:?}");
        match event {
            E::TurnStarted { .. } if running => return Err("a turn starts in a turn".to_owned()),
            E::TurnStarted { .. } => (running, heard) = (true, false),
            _ if !running => return Err(format!("after the end of the turn: {}", name())),
            E::TurnEnded { .. } => running = false,
            E::StopHeard { .. } if heard => return Err("a stop is heard twice".to_owned()),
            E::StopHeard { .. } => heard = true,
            // The result of a call that was done before the stop reached it is one; and what a command prints while
            // it is being stopped is no answer.
            E::ToolFinished { .. } | E::ToolOutput { .. } => {}
            _ if heard => return Err(format!("after the stop was heard: {}", name())),
            E::TextDelta { .. } | E::ReasoningDelta { .. } | E::StepAnswered { .. }
                if accepted.is_some_and(|accepted| *order > accepted) =>
            {
                return Err(format!("after the stop was accepted: {}", name()));
            }
            _ => {}
        }
    }
    if running && !observation.hung {
        return Err("a turn is shown to start and not to end".to_owned());
    }
    Ok(())
}
