//! The move of a cell from one parent to another.
//!
//! A moving cell is always below one of the two parents, and for a moment below both: a stop of either finds it. It
//! does not escape a stop that covers its old place. It stays registered, so that its work is still counted.

use std::sync::Arc;

use super::{Below, Node, Place};
use crate::gate::NotStarted;

impl Node {
    /// Moves this scope, with all below it, below another scope: from now on stops of the new parent cover it, and
    /// those of the former parent do not.
    ///
    /// # Errors
    /// If a stop covers either parent, or the new one is closed: then this scope stays where it is. A stop of the new
    /// parent that came in between may cover it all the same.
    pub(crate) fn move_below(&self, to: &Node) -> Result<(), NotStarted> {
        let Place::Movable(place) = &self.cell.place else {
            debug_assert!(false, "this scope was not made to move");
            return Err(NotStarted::Closed);
        };
        let mut place = place.lock();
        // Added there before it is removed here. The next stop that closes the barrier there finds it.
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
