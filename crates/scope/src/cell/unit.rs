//! Scopes that are one item of a receipt each, and what such an item is called.
//!
//! A unit may lie in another: a call of an agent that is itself a call. Ids of calls are unique in one agent only, so
//! what names the inner one is the path of both, `call_1/call_2`: in receipts, in events, and to stop it alone. It is
//! called so as long as it is there, also when it has moved.

use std::sync::Arc;

use allstop_core::receipt::{EndMethod, Evidence, ItemKind};
use tokio::time::Instant;

use super::{Node, Seat};
use crate::work::{EndedWork, Ending, WorkSpec};

/// A scope that is one item of a receipt.
pub(crate) struct Unit {
    pub(crate) spec: WorkSpec,
    pub(crate) seq: u64,
    /// Its name in receipts.
    pub(crate) path: Arc<str>,
}

impl Unit {
    /// Of a scope that is made below `parent`.
    pub(super) fn below(parent: &Node, spec: WorkSpec) -> Arc<Self> {
        let seq = parent.env().next_seq();
        let id = spec.item_id(seq);
        let path = match parent.unit() {
            Some(outer) => format!("{}/{id}", outer.path).into(),
            None => id,
        };
        Arc::new(Self { spec, seq, path })
    }
}

/// Checkpoint of a call that never began: its barrier lets nothing through.
const BEFORE_ITS_START: &str = "before_its_start";

impl Unit {
    pub(super) fn is_call(&self) -> bool {
        self.spec.kind == ItemKind::ToolCall
    }

    /// The record that a stop keeps of a call that was asked for and has not begun. Other units are made when they begin.
    pub(super) fn not_begun(&self, seat: Seat) -> Option<EndedWork> {
        self.is_call().then(|| EndedWork {
            seat,
            seq: self.seq,
            spec: self.spec.clone(),
            ending: Ending::Stopped {
                how: EndMethod::NotBegun,
                evidence: Evidence::observed_at(BEFORE_ITS_START),
            },
            at: Instant::now(),
            details: None,
            was_thread: false,
        })
    }
}

impl Node {
    /// The unit that this scope belongs to: its own, or the nearest above.
    pub(crate) fn unit(&self) -> Option<Arc<Unit>> {
        let own = self.cell.state.lock().entries.unit(self.seat).cloned();
        own.or_else(|| self.cell.place.unit())
    }

    /// The unit of this path, if it is here or below.
    pub(crate) fn find_unit(&self, path: &str) -> Option<Self> {
        let mut nodes = vec![self.clone()];
        while let Some(node) = nodes.pop() {
            let state = node.cell.state.lock();
            let is_it = |seat: &Seat| {
                let unit = state.entries.get(*seat).unit.as_ref();
                unit.is_some_and(|unit| *unit.path == *path)
            };
            // The last one: an entry stays when its scope has ended, and models use the same ids again.
            if let Some(seat) = state.entries.below(node.seat).filter(is_it).last() {
                let cell = Arc::clone(&node.cell);
                return Some(Self { cell, seat });
            }
            let children: Vec<_> = state.children(node.seat).collect();
            drop(state);
            nodes.extend(children);
        }
        None
    }
}
