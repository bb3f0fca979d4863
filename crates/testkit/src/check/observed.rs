//! `cancel_observed` says what the engine really did: it had heard the stop, and nothing that the stop covers ran on.

use allstop_agent::AgentEvent;
use allstop_core::Extent;
use allstop_core::record::SessionRecord as R;

use super::receipt::{answers, covers, in_extent, says_running};
use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, ObservedStop, RunObservation, StopAnswer};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "cancel_observed",
    invariant: Invariant::NoSelfAcknowledgement,
    class: FailureClass::FalseReceipt,
    needs: &[EvidenceKind::Run],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    for (asked, answer) in answers(observation) {
        let receipt = &answer.receipt;
        let left =
            in_extent(receipt).find(|item| says_running(item) && item.state.as_str() != "refused");
        if !receipt.cancel_observed() {
            if left.is_none() {
                return Err("the cancel was not observed, and no item says what is left".to_owned());
            }
            continue;
        }
        if let Some(item) = left {
            let (name, said) = (&item.name, item.state.as_str());
            return Err(format!("the cancel was observed, and {name} is {said}"));
        }
        let goes_on = observation.session.is_some();
        let mut covered = observation.lived.iter().filter(|lived| {
            covers(asked, receipt, lived) && (!goes_on || lived.began < asked.accepted)
        });
        if let Some(lived) = covered.find(|lived| lived.was_alive(answer.order)) {
            let name = format!("{} {}", lived.kind.as_str(), lived.id);
            return Err(format!("the cancel was observed, and {name} runs"));
        }
        if asked.extent == Extent::Turn
            && observation.is_witnessed
            && !goes_on
            && !engine_had_heard(observation, asked, answer)
        {
            return Err(
                "the cancel was observed, and until then the engine had shown nothing of it"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

/// True if the engine showed, before the answer, that it had heard a stop or had ended.
fn engine_had_heard(
    observation: &RunObservation,
    asked: &ObservedStop,
    answer: &StopAnswer,
) -> bool {
    let is_word = |event: &AgentEvent| {
        matches!(
            event,
            AgentEvent::StopHeard { .. } | AgentEvent::TurnEnded { .. }
        )
    };
    let mut events = observation.events.iter();
    // Before the first record of a turn, and after its ending, no engine is there that could hear.
    let durable = observation.witness.durable(asked.accepted);
    let mut written = observation.records.iter().take(durable).rev();
    let is_open = written.find_map(|record| match record {
        R::TurnStarted { .. } => Some(true),
        R::TurnCommitted { .. } | R::TurnStopped { .. } => Some(false),
        _ => None,
    });
    is_open != Some(true)
        || observation.over <= answer.order
        || events.any(|(at, event)| *at <= answer.order && is_word(event))
}
