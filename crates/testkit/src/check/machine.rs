//! Receipts say of processes and connections what the machine shows (invariant 3).

use allstop_core::Extent;
use allstop_core::receipt::ItemKind;

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const PROCESSES: CheckerRule = CheckerRule {
    name: "processes",
    invariant: Invariant::NoClaimBeyondVerified,
    class: FailureClass::FalseReceipt,
    needs: &[EvidenceKind::Machine],
    check: quiet_is_quiet,
};

pub(super) const CONNECTIONS: CheckerRule = CheckerRule {
    name: "connections",
    invariant: Invariant::NoClaimBeyondVerified,
    class: FailureClass::SignalMissesLeaf,
    needs: &[EvidenceKind::Machine],
    check: stopped_calls_are_closed,
};

/// Nothing that a quiet receipt covers runs; what it leaves alone is named.
fn quiet_is_quiet(observation: &RunObservation) -> Result<(), String> {
    for look in &observation.looks {
        // Of what had ended before it was asked a stop says nothing.
        let Some(receipt) = look.receipt.as_ref().filter(|it| it.outcome().is_none()) else {
            continue;
        };
        let names_background = receipt
            .items()
            .iter()
            .any(|item| item.kind == ItemKind::Background && item.state.breaks_quiet());
        let is_let_alone = look.extent == Extent::Turn && names_background;
        let background = look.background.iter().filter(|_| !is_let_alone);
        let running = look.running.iter().chain(background).next();
        if let Some(line) = running
            && receipt.quiet()
        {
            let extent = look.extent;
            return Err(format!(
                "the receipt of the {extent} says quiet while this runs: {line}"
            ));
        }
        if !receipt.quiet() && look.running.is_empty() && look.background.is_empty() {
            return Err(format!(
                "nothing runs, and the receipt is not quiet: {:?}",
                receipt.items()
            ));
        }
    }
    Ok(())
}

/// A model call that a receipt calls stopped has no connection any more, as the server sees it.
fn stopped_calls_are_closed(observation: &RunObservation) -> Result<(), String> {
    match observation.looks.iter().find(|look| look.connections > 0) {
        Some(look) => Err(format!(
            "a model call is stopped, and {} connections are open",
            look.connections
        )),
        None => Ok(()),
    }
}
