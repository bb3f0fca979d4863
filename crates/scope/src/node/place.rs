//! Where a node hangs in the tree, and how one that may move gets from one parent to another.
//!
//! What moves is at every moment below one of the two, and for a moment below both: a stop of either finds it. What a
//! stop covers where it was does not slip away. It stays registered as it is, so what counts its work goes on counting.
//!
//! Locking: the lock of a place is taken with no node's lock but that of a node further down, and under it those of the
//! two parents one after the other.

use std::sync::Arc;

use super::Node;
use crate::gate::NotStarted;
use crate::sync::Mutex;

/// Where a node hangs.
pub(super) enum Place {
    Root,
    Fixed(Below),
    Movable(Mutex<Below>),
}

pub(super) struct Below {
    parent: Arc<Node>,
    key: usize,
}

impl Place {
    /// Below a parent, where it is known by this key.
    pub(super) fn below(parent: &Arc<Node>, key: usize, movable: bool) -> Self {
        let below = Below {
            parent: Arc::clone(parent),
            key,
        };
        if movable {
            Self::Movable(Mutex::new(below))
        } else {
            Self::Fixed(below)
        }
    }

    /// The node above, at this moment.
    pub(super) fn parent(&self) -> Option<Arc<Node>> {
        match self {
            Self::Root => None,
            Self::Fixed(below) => Some(Arc::clone(&below.parent)),
            Self::Movable(below) => Some(Arc::clone(&below.lock().parent)),
        }
    }

    /// Takes the node out of the tree: its last handle is gone. Returns the node above.
    pub(super) fn leave(&mut self) -> Option<Arc<Node>> {
        let below = match std::mem::replace(self, Self::Root) {
            Self::Root => return None,
            Self::Fixed(below) => below,
            Self::Movable(below) => below.into_inner(),
        };
        below.leave();
        Some(below.parent)
    }
}

impl Below {
    fn leave(&self) {
        drop(self.parent.state.lock().children.remove(self.key));
    }
}

impl Node {
    /// Hangs this node, with all below it, below another one: from now on stops of that one cover it, and those of the
    /// former one do not.
    ///
    /// # Errors
    /// If a stop covers either, or the new one is closed: then it stays where it is. A stop of the new one that came in
    /// between may cover it all the same.
    pub(crate) fn move_below(self: &Arc<Self>, to: &Arc<Node>) -> Result<(), NotStarted> {
        let Place::Movable(place) = &self.place else {
            debug_assert!(false, "this scope was not made to move");
            return Err(NotStarted::Closed);
        };
        let mut place = place.lock();
        // There before it is gone here. What was let in behind no barrier is found by whoever closes that barrier next.
        let key = {
            let mut there = to.state.lock();
            there.gate.check()?;
            there.children.insert(Arc::downgrade(self))
        };
        let gone = {
            let mut here = place.parent.state.lock();
            match here.gate.cause() {
                Some(cause) => Err(NotStarted::Stopped(cause.clone())),
                None => Ok(here.children.remove(place.key)),
            }
        };
        let moved = Below {
            parent: Arc::clone(to),
            key,
        };
        match gone {
            Ok(former) => {
                let former = (former, std::mem::replace(&mut *place, moved));
                drop(place);
                drop(former);
                Ok(())
            }
            Err(refused) => {
                moved.leave();
                Err(refused)
            }
        }
    }
}
