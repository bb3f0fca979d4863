//! Units and their paths in receipts. A receipt is the result of a stop. A unit is a scope whose whole work is one item
//! of a receipt.
//!
//! A unit can contain another unit: a call of a sub-agent is inside the call that started this sub-agent. Ids of calls
//! are unique only within one agent. Therefore the inner call is identified by a path of both ids, such as
//! `call_1/call_2`. The path is used in receipts, in events, and to stop that call alone. A unit keeps its path when it
//! is moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use allstop_core::receipt::{ItemKind, WaitReason};

use crate::work::WorkSpec;

/// A scope that is one item of a receipt.
pub(crate) struct ReceiptScope {
    pub(crate) spec: WorkSpec,
    pub(crate) seq: u64,
    /// Path of the unit in receipts.
    pub(crate) path: Arc<str>,
    /// Number of open permission questions that the start of this unit waits for.
    questions: AtomicUsize,
}

impl ReceiptScope {
    /// A unit inside `outer`. `seq` is the number of the unit among all work.
    pub(super) fn new(spec: WorkSpec, seq: u64, outer: Option<&Self>) -> Self {
        let id = spec.item_id(seq);
        let path = match outer {
            Some(outer) => format!("{}/{id}", outer.path).into(),
            None => id,
        };
        Self {
            spec,
            seq,
            path,
            questions: AtomicUsize::new(0),
        }
    }

    pub(crate) fn begin_question(&self) {
        self.questions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_question(&self) {
        self.questions.fetch_sub(1, Ordering::Relaxed);
    }

    /// The event that the start of this unit waits for.
    pub(crate) fn waits_for(&self) -> Option<WaitReason> {
        (self.questions.load(Ordering::Relaxed) > 0).then_some(WaitReason::Permission)
    }

    pub(super) fn is_call(&self) -> bool {
        self.spec.kind == ItemKind::ToolCall
    }
}
