//! Lost executions: executions whose workers have lost their leases. Also the late receipts of these executions.
//!
//! A worker is a process that runs tasks of a cluster. If a worker cannot renew its lease, the worker stops its tasks,
//! and other workers take the tasks over. A late receipt is the receipt of such a stop. The worker writes the receipt
//! when it can write again.
//!
//! Invariants:
//! 1. Each late receipt comes from the worker that ran the execution. An execution has at most one late receipt.
//! 2. A late receipt becomes the receipt of the task's end under two conditions: the end contains the number of this
//!    execution, and the end has no receipt. A later execution has its own receipt.

use std::sync::Arc;

use allstop_core::{Receipt, WorkerId};

use super::task::Task;

/// An execution that another worker has taken over, or that the cluster has given up.
#[derive(Debug, Clone, PartialEq)]
pub struct LostExecution {
    /// Number of the execution.
    pub epoch: u64,
    /// Worker of the execution.
    pub worker: WorkerId,
    /// Receipt of the stop with which the worker ended the execution. `None` if the worker has not written a receipt,
    /// for example because the worker no longer exists.
    pub receipt: Option<Arc<Receipt>>,
}

impl Task {
    /// True if this worker may write a late receipt for this execution. A late receipt for a running execution also
    /// marks the execution as lost.
    pub(crate) fn awaits_receipt(&self, epoch: u64, worker: &WorkerId) -> bool {
        match self.lost.iter().find(|lost| lost.epoch == epoch) {
            Some(lost) => lost.worker == *worker && lost.receipt.is_none(),
            None => {
                self.is_executing && self.epoch == epoch && self.worker.as_ref() == Some(worker)
            }
        }
    }

    /// Notes that the current execution is lost. An execution without a worker ran in a process that has ended and
    /// writes no receipt. Such an execution gets no entry.
    pub(super) fn lose_execution(&mut self) {
        let is_known = self
            .lost
            .last()
            .is_some_and(|lost| lost.epoch == self.epoch);
        if let Some(worker) = self.worker.clone().filter(|_| !is_known) {
            self.lost.push(LostExecution {
                epoch: self.epoch,
                worker,
                receipt: None,
            });
        }
    }

    pub(super) fn add_late_receipt(&mut self, epoch: u64, receipt: &Arc<Receipt>) {
        if self.epoch == epoch {
            self.lose_execution();
        }
        if let Some(lost) = self.lost.iter_mut().find(|lost| lost.epoch == epoch) {
            lost.receipt = Some(Arc::clone(receipt));
        }
        self.complete_ending();
    }

    /// If the end of the task names a lost execution and has no receipt, adds the receipt of this execution to the end.
    pub(super) fn complete_ending(&mut self) {
        let Some(epoch) = self.ending.lost_execution else {
            return;
        };
        if self.ending.receipt.is_none() {
            let mut lost = self.lost.iter();
            let lost = lost.find(|lost| lost.epoch == epoch);
            self.ending.receipt = lost.and_then(|lost| lost.receipt.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::receipt::{StopFindings, StopInfo};
    use allstop_core::{Cause, CauseKind, Extent, StopId};

    use super::super::test_tasks::{at, ended, fold, started};
    use super::super::{IllegalTaskRecord, TaskRecord};
    use super::*;

    fn receipt(id: &str) -> Arc<Receipt> {
        let stop = StopInfo {
            stop_id: StopId::new(id),
            target: "task/t".into(),
            extent: Extent::Subtree,
            cause: Cause::new(CauseKind::LeaseLost),
            requested_at: at(),
        };
        Arc::new(Receipt::of_stop(stop, StopFindings::default()))
    }

    fn late(epoch: u64, worker: &str) -> TaskRecord {
        TaskRecord::LateReceipt {
            epoch,
            worker: WorkerId::new(worker),
            receipt: receipt(worker),
            at: at(),
        }
    }

    fn shown(records: &[TaskRecord]) -> Option<String> {
        let task = fold(records).unwrap();
        let receipt = task.ending.receipt?;
        Some(receipt.stop_id().to_string())
    }

    #[test]
    fn end_of_a_lost_execution_has_its_receipt() {
        let (a, b) = (started(1, "a"), started(2, "b"));
        let lost = ended(Some(1), None);
        for records in [
            vec![a.clone(), b.clone(), lost.clone(), late(1, "a")],
            vec![a.clone(), b.clone(), late(1, "a"), lost.clone()],
            vec![a.clone(), late(1, "a"), b.clone(), lost.clone()],
            // The cluster has given the task up (a dead letter): no other execution has started.
            vec![a.clone(), lost.clone(), late(1, "a")],
            vec![a.clone(), late(1, "a"), lost.clone()],
        ] {
            assert_eq!(shown(&records).as_deref(), Some("a"), "{records:?}");
            let without = records.into_iter();
            let without: Vec<_> = without
                .filter(|record| !matches!(record, TaskRecord::LateReceipt { .. }))
                .collect();
            assert_eq!(shown(&without), None);
        }
    }

    #[test]
    fn end_of_a_later_execution_or_with_a_receipt_stays_as_it_is() {
        let (a, b) = (started(1, "a"), started(2, "b"));
        let end = ended(None, None);
        let ran_again = [a.clone(), b.clone(), end, late(1, "a")];
        assert_eq!(shown(&ran_again), None);
        assert!(fold(&ran_again).unwrap().lost[0].receipt.is_some());
        let of_second = [
            a.clone(),
            b.clone(),
            started(3, "c"),
            ended(Some(2), None),
            late(1, "a"),
        ];
        assert_eq!(shown(&of_second), None);
        let stopped = ended(Some(1), Some(receipt("stop")));
        let stopped = [a, b, stopped, late(1, "a")];
        assert_eq!(shown(&stopped).as_deref(), Some("stop"));
    }

    #[test]
    fn only_the_worker_of_a_lost_execution_writes_its_receipt_once() {
        let (a, b) = (started(1, "a"), started(2, "b"));
        let lost = ended(Some(1), None);
        for (records, epoch) in [
            // A second receipt of the same execution.
            (vec![a.clone(), late(1, "a"), late(1, "a")], 1),
            (vec![a.clone(), b.clone(), late(1, "a"), late(1, "a")], 1),
            // A receipt of another worker, or of an execution that does not exist.
            (vec![a.clone(), b.clone(), late(1, "b")], 1),
            (vec![a.clone(), late(1, "b")], 1),
            (vec![a.clone(), b.clone(), late(3, "a")], 3),
            (vec![late(0, "a")], 0),
            // A receipt of an execution that was not lost.
            (vec![a.clone(), ended(None, None), late(1, "a")], 1),
            (vec![a.clone(), b.clone(), lost, late(2, "b")], 2),
        ] {
            let folded = fold(&records).map(drop);
            let refused = Err(IllegalTaskRecord::NoReceiptAwaited(epoch));
            assert_eq!(folded, refused, "{records:?}");
        }
    }
}
