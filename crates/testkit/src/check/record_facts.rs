//! Facts about one record.

use allstop_core::record::SessionRecord;
use allstop_core::{StopReason, TurnNumber};

/// Returns the turn that a record ends, and the reason.
pub(super) fn ending(record: &SessionRecord) -> Option<(TurnNumber, StopReason)> {
    match record {
        SessionRecord::TurnCommitted { turn, .. } => Some((*turn, StopReason::Completed)),
        SessionRecord::TurnStopped { turn, reason, .. } => Some((*turn, *reason)),
        _ => None,
    }
}

/// The record without the fields that differ from run to run: the receipt of a stop, and the marker of a process.
pub(super) fn without_run_specific_fields(record: &SessionRecord) -> SessionRecord {
    let mut record = record.clone();
    match &mut record {
        SessionRecord::TurnStopped { receipt, .. } => *receipt = None,
        SessionRecord::BackgroundStarted { marker, .. } => *marker = None,
        _ => {}
    }
    record
}
