//! Idle is reported when no turn is open and nothing attached runs (invariant 3).

use allstop_core::receipt::ItemKind;
use allstop_core::record::SessionRecord as R;
use allstop_session::{BackgroundItem, SessionEventKind as K};

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, Order, RunObservation, WitnessedLife};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "true_idle",
    invariant: Invariant::NoClaimBeyondVerified,
    class: FailureClass::WrongExtent,
    needs: &[EvidenceKind::Session],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let Some(session) = &observation.session else {
        return Ok(());
    };
    let mut open = None;
    for (order, event) in &session.events {
        let running: &[BackgroundItem] = match &event.kind {
            K::Recorded { record, .. } => {
                match &**record {
                    R::TurnStarted { turn, .. } => open = Some(*turn),
                    R::TurnCommitted { .. } | R::TurnStopped { .. } => open = None,
                    _ => {}
                }
                continue;
            }
            K::AssistantIdle { running, .. } => running,
            K::SessionIdle { detached, .. } => detached,
            _ => continue,
        };
        if let Some(turn) = open {
            return Err(format!("idle is told in turn {turn}"));
        }
        all_named(observation, *order, running)?;
    }
    for sent in &session.sent {
        if let Some((order, waited)) = &sent.waited
            && !waited.timed_out
        {
            all_named(observation, *order, &waited.running)
                .map_err(|wrong| format!("whoever waited for {:?}: {wrong}", sent.text))?;
        }
    }
    Ok(())
}

/// Background work that lives is named.
fn all_named(
    observation: &RunObservation,
    at: Order,
    named: &[BackgroundItem],
) -> Result<(), String> {
    let lives = |lived: &&WitnessedLife| lived.kind == ItemKind::Background && lived.was_alive(at);
    let unnamed = observation.lived.iter().filter(lives).find(|lived| {
        let mut ids = named.iter().map(|item| item.id.as_str());
        !ids.any(|id| id == &*lived.id)
    });
    match unnamed {
        Some(work) => Err(format!("idle is told, and {} runs", work.id)),
        None => Ok(()),
    }
}
