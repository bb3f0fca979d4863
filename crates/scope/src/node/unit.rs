//! Scopes that are one item of a receipt each, and what such an item is called.
//!
//! A unit may lie in another: a call of an agent that is itself a call. Ids of calls are unique in one agent only, so
//! what names the inner one is the path of both, `call_1/call_2`: in receipts, in events, and to stop it alone.

use std::sync::Arc;

use super::Node;
use crate::work::WorkSpec;

/// What a scope is that is one item of a receipt.
pub(crate) struct Unit {
    pub(crate) spec: WorkSpec,
    pub(crate) seq: u64,
}

impl Unit {
    pub(super) fn new(spec: WorkSpec, seq: u64) -> Arc<Self> {
        Arc::new(Self { spec, seq })
    }

    fn id(&self) -> Arc<str> {
        self.spec.item_id(self.seq)
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

    /// What the item is called that this node belongs to; `None` where there is none.
    pub(crate) fn item_path(&self) -> Option<Arc<str>> {
        let mut path = self.unit.as_ref().map(|unit| unit.id());
        let mut above = self.parent();
        while let Some(node) = above {
            if let Some(unit) = &node.unit {
                let id = unit.id();
                path = Some(match path {
                    Some(inner) => format!("{id}/{inner}").into(),
                    None => id,
                });
            }
            above = node.parent();
        }
        path
    }

    /// The unit of this path below this node. Where it is gone with one above it that has ended, that one: whatever it
    /// was has ended too.
    pub(crate) fn unit_below(self: &Arc<Self>, path: &str) -> Option<Arc<Self>> {
        let mut nodes = self.children();
        while let Some(node) = nodes.pop() {
            let Some(unit) = &node.unit else {
                nodes.extend(node.children());
                continue;
            };
            let Some(rest) = path.strip_prefix(&*unit.id()) else {
                continue;
            };
            match rest.strip_prefix('/') {
                None if rest.is_empty() => return Some(node),
                None => {}
                Some(rest) => {
                    let below = node.unit_below(rest);
                    return below.or_else(|| node.has_ended().then_some(node));
                }
            }
        }
        None
    }
}
