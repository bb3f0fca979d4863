//! Stops of a session until the log has their receipts.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_core::Receipt;
use allstop_core::record::SessionRecord;

use crate::message::MessageState;
use crate::stop_handle::SessionStop;

/// Maximum number of receipts that are kept while the log does not accept records. A person reads only the last
/// receipts.
const UNRECORDED_MAX: usize = 64;

/// Stops of a session until the log has their receipts.
#[derive(Debug, Default)]
pub(crate) struct StopList {
    running: Vec<SessionStop>,
    /// Complete receipts that are not in the log yet, in the order of their completion.
    unrecorded: VecDeque<(SessionStop, Arc<Receipt>)>,
}

impl StopList {
    /// Adds an accepted stop, unless it has joined a stop in the list.
    pub(crate) fn follow(&mut self, stop: SessionStop) -> FollowedStop {
        let id = &stop.request().stop_id;
        let mut running = self.running.iter();
        if let Some(joined) = running.find(|other| other.request().stop_id == *id) {
            return FollowedStop::Joined(joined.clone());
        }
        self.running.push(stop.clone());
        FollowedStop::First(stop)
    }

    /// Removes a stop after its receipt is complete.
    pub(crate) fn finish(&mut self, stop: &SessionStop) {
        let id = &stop.request().stop_id;
        self.running.retain(|other| other.request().stop_id != *id);
    }

    /// Returns a stop that ends this turn, and has no complete receipt yet.
    pub(crate) fn ending(&self, turn: &Arc<MessageState>) -> Option<SessionStop> {
        let mut running = self.running.iter();
        running.find(|stop| stop.ends(turn)).cloned()
    }

    /// Returns a stop without a complete receipt.
    pub(crate) fn first_running(&self) -> Option<SessionStop> {
        self.running.first().cloned()
    }

    /// True if all receipts are complete and in the log.
    pub(crate) fn is_settled(&self) -> bool {
        self.running.is_empty() && self.unrecorded.is_empty()
    }

    /// True if a complete receipt is not in the log yet.
    pub(crate) fn has_unrecorded(&self) -> bool {
        !self.unrecorded.is_empty()
    }

    pub(crate) fn complete(&mut self, stop: &SessionStop, receipt: Arc<Receipt>) {
        if self.unrecorded.len() == UNRECORDED_MAX {
            self.unrecorded.pop_front();
        }
        self.unrecorded.push_back((stop.clone(), receipt));
    }

    /// Takes the receipts for the log.
    pub(crate) fn take_unrecorded(&mut self) -> UnrecordedReceipts {
        UnrecordedReceipts(std::mem::take(&mut self.unrecorded))
    }
}

/// Receipts that are being written. Dropping this value answers the stops of these receipts, whether the write
/// succeeded or not.
#[derive(Default)]
pub(crate) struct UnrecordedReceipts(VecDeque<(SessionStop, Arc<Receipt>)>);

impl UnrecordedReceipts {
    pub(crate) fn records(&self) -> impl Iterator<Item = SessionRecord> {
        let receipts = self.0.iter().map(|(_, receipt)| receipt);
        receipts.map(|receipt| SessionRecord::Stopped {
            receipt: Arc::clone(receipt),
        })
    }
}

impl Drop for UnrecordedReceipts {
    fn drop(&mut self) {
        for (stop, receipt) in &self.0 {
            stop.answer(Arc::clone(receipt));
        }
    }
}

/// A stop in the list: new, or joined to an earlier stop.
pub(crate) enum FollowedStop {
    First(SessionStop),
    Joined(SessionStop),
}
