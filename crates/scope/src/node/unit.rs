//! Scopes that are one item of a receipt each, and what such an item is called.
//!
//! A unit may lie in another: a call of an agent that is itself a call. Ids of calls are unique in one agent only, so
//! what names the inner one is the path of both, `call_1/call_2`: in receipts, in events, and to stop it alone. It is
//! called so as long as it is there, also when it has moved.

use std::sync::Arc;

use allstop_core::receipt::{Evidence, How, ItemKind};
use tokio::time::Instant;

use super::Node;
use crate::work::{EndedWork, Ending, WorkSpec};

/// What a scope is that is one item of a receipt.
pub(crate) struct Unit {
    pub(crate) spec: WorkSpec,
    pub(crate) seq: u64,
    /// What receipts call it.
    pub(crate) path: Arc<str>,
}

impl Unit {
    /// Of a scope that is made below `parent`.
    pub(super) fn below(parent: &Node, spec: WorkSpec) -> Arc<Self> {
        let seq = parent.env.next_seq();
        let id = spec.item_id(seq);
        let path = match parent.unit_above() {
            Some(outer) => format!("{}/{id}", outer.path).into(),
            None => id,
        };
        Arc::new(Self { spec, seq, path })
    }
}

/// Where a call is that never began: its barrier lets nothing through.
const BEFORE_ITS_START: &str = "before_its_start";

impl Unit {
    pub(super) fn is_call(&self) -> bool {
        self.spec.kind == ItemKind::ToolCall
    }

    /// What a stop keeps of a call that has been asked for and has not begun. Other units are made when they begin.
    pub(super) fn not_begun(&self) -> Option<EndedWork> {
        self.is_call().then(|| EndedWork {
            seq: self.seq,
            spec: self.spec.clone(),
            ending: Ending::Stopped {
                how: How::NotBegun,
                evidence: Evidence::observed_at(BEFORE_ITS_START),
            },
            at: Instant::now(),
            details: None,
            was_thread: false,
        })
    }
}

impl Node {
    /// The unit that this node belongs to: its own, or the nearest above.
    pub(crate) fn unit_above(&self) -> Option<Arc<Unit>> {
        if let Some(unit) = &self.unit {
            return Some(Arc::clone(unit));
        }
        let mut above = self.parent();
        while let Some(node) = above {
            if let Some(unit) = &node.unit {
                return Some(Arc::clone(unit));
            }
            above = node.parent();
        }
        None
    }

    /// The unit of this path, if it is here or below.
    pub(crate) fn find_unit(self: &Arc<Self>, path: &str) -> Option<Arc<Self>> {
        let mut nodes = vec![Arc::clone(self)];
        while let Some(node) = nodes.pop() {
            if node.unit.as_ref().is_some_and(|unit| *unit.path == *path) {
                return Some(node);
            }
            nodes.extend(node.children());
        }
        None
    }
}
