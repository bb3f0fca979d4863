//! The log holds each append that it has confirmed, to the record, and nothing else (invariant 2, also after `kill
//! -9`).

use super::{CheckerRule, FailureClass, Invariant, without_chance};
use crate::observe::{APPEND, EvidenceKind, Moment, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "appended",
    invariant: Invariant::NoHalfTurn,
    class: FailureClass::CorruptHistory,
    needs: &[EvidenceKind::Points],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let records = &observation.records;
    if observation.is_witnessed {
        let confirmed = observation.witness.durable(observation.over);
        if records.len() >= confirmed {
            return Ok(());
        }
        return Err(format!(
            "{} records are in the store, {confirmed} were confirmed",
            records.len()
        ));
    }
    let appends = observation
        .points
        .iter()
        .filter(|point| point.what == APPEND && point.moment == Moment::Inside);
    let appended: usize = appends.map(|point| point.of.split('+').count()).sum();
    let expected = observation.records_before + appended;
    if records.len() != expected {
        return Err(format!(
            "{} records are in the store, {expected} were appended",
            records.len()
        ));
    }
    let mut pairs = records.iter().zip(&observation.undisturbed().records);
    match pairs.find(|(here, there)| without_chance(here) != without_chance(there)) {
        Some((here, there)) => Err(format!("the store holds {here:?}, appended was {there:?}")),
        None => Ok(()),
    }
}
