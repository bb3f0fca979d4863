//! The place of a cell in the tree, and the move of a cell from one parent to another.
//!
//! A moving cell is at every moment below one of the two parents, and for a moment below both: a stop of either finds it.
//! It does not escape a stop that covers its old place. It stays registered, so that its work is still counted.
//!
//! Locking: the lock of a place is taken with no cell's lock but that of a cell further down, and under it those of the
//! two parents one after the other.

use std::sync::Arc;

use super::{CellState, Node, Unit};
use crate::gate::NotStarted;
use crate::scope::Placement;
use crate::sync::Mutex;

/// Place of a cell in the tree.
pub(super) enum Place {
    Root,
    Fixed(Below),
    Movable(Mutex<Below>),
}

pub(super) struct Below {
    parent: Node,
    key: usize,
    /// The unit that the parent belongs to, as far as its cell knows.
    unit: Option<Arc<Unit>>,
}

impl Below {
    /// Below a parent, in whose cell it is known by this key.
    fn of(parent: Node, key: usize, there: &CellState) -> Self {
        let unit = there.entries.unit(parent.seat).cloned();
        Self { parent, key, unit }
    }

    fn leave(&self) {
        drop(self.parent.cell.state.lock().children.remove(self.key));
    }
}

impl Place {
    /// Below a parent, in whose cell, which is locked, it is known by this key.
    pub(super) fn below(parent: Node, key: usize, there: &CellState, placement: Placement) -> Self {
        let below = Below::of(parent, key, there);
        if placement == Placement::Movable {
            Self::Movable(Mutex::new(below))
        } else {
            Self::Fixed(below)
        }
    }

    fn look<T>(&self, look: impl FnOnce(&Below) -> T) -> Option<T> {
        match self {
            Self::Root => None,
            Self::Fixed(below) => Some(look(below)),
            Self::Movable(below) => Some(look(&below.lock())),
        }
    }

    /// The scope above, at this moment.
    pub(super) fn parent(&self) -> Option<Node> {
        self.look(|below| below.parent.clone())
    }

    /// The unit that the cell lies in, at this moment.
    pub(super) fn unit(&self) -> Option<Arc<Unit>> {
        let of = |below: &Below| (below.unit.clone(), below.parent.clone());
        let mut next = self.look(of);
        while let Some((unit, parent)) = next {
            if unit.is_some() {
                return unit;
            }
            next = parent.cell.place.look(of);
        }
        None
    }

    /// Takes the cell out of the tree: its last handle is gone. Returns the scope above.
    pub(super) fn leave(&mut self) -> Option<Node> {
        let below = match std::mem::replace(self, Self::Root) {
            Self::Root => return None,
            Self::Fixed(below) => below,
            Self::Movable(below) => below.into_inner(),
        };
        below.leave();
        Some(below.parent)
    }
}

impl Node {
    /// Hangs this scope, with all below it, below another one: from now on stops of that one cover it, and those of the
    /// former one do not.
    ///
    /// # Errors
    /// If a stop covers either, or the new one is closed: then it stays where it is. A stop of the new one that came in
    /// between may cover it all the same.
    pub(crate) fn move_below(&self, to: &Node) -> Result<(), NotStarted> {
        let Place::Movable(place) = &self.cell.place else {
            debug_assert!(false, "this scope was not made to move");
            return Err(NotStarted::Closed);
        };
        let mut place = place.lock();
        // There before it is gone here. What was let in behind no barrier is found by whoever closes that barrier next.
        let moved = {
            let mut there = to.cell.state.lock();
            there.entries.check(to.seat)?;
            let child = (to.seat, Arc::downgrade(&self.cell));
            let key = there.children.insert(child);
            Below::of(to.clone(), key, &there)
        };
        let gone = {
            let mut here = place.parent.cell.state.lock();
            match here.entries.cause(place.parent.seat) {
                Some(cause) => Err(NotStarted::Stopped(cause.clone())),
                None => Ok(here.children.remove(place.key)),
            }
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
