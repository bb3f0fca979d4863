//! Scopes that are one item of a receipt each, and their names there.
//!
//! A unit may lie in another one: a call of an agent that is itself a call. Ids of calls are unique in one agent only,
//! so the path of both names the inner call, `call_1/call_2`: in receipts, in events, and to stop that call alone. A
//! unit keeps its path when it moves.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;

use crate::work::WorkSpec;

/// A scope that is one item of a receipt.
pub(crate) struct Unit {
    pub(crate) spec: WorkSpec,
    pub(crate) seq: u64,
    /// Its name in receipts.
    pub(crate) path: Arc<str>,
}

impl Unit {
    /// Unit number `seq` of all work, made inside of `outer`.
    pub(super) fn new(spec: WorkSpec, seq: u64, outer: Option<&Self>) -> Self {
        let id = spec.item_id(seq);
        let path = match outer {
            Some(outer) => format!("{}/{id}", outer.path).into(),
            None => id,
        };
        Self { spec, seq, path }
    }

    pub(super) fn is_call(&self) -> bool {
        self.spec.kind == ItemKind::ToolCall
    }
}
