//! The move of a cell from one parent to another.
//!
//! A moving cell is always below one of the two parents, and briefly below both, so a stop of either parent finds it.
//! The cell does not escape a stop that covers its old parent. The cell stays registered, so its work is still counted.

use std::sync::Arc;

use super::{Below, Node, Place};
use crate::gate::NotStarted;

impl Node {
    /// Moves this scope, with all scopes below it, below another scope. From now on, stops of the new parent cover this
    /// scope, and stops of the former parent do not.
    ///
    /// # Errors
    /// If a stop covers either parent, or the new parent is closed. The scope then stays below its former parent. A
    /// stop of the new parent during the attempt may still cover it.
    pub(crate) fn move_below(&self, to: &Node) -> Result<(), NotStarted> {
        let Place::Movable(place) = &self.cell.place else {
            debug_assert!(false, "this scope was not made to move");
            return Err(NotStarted::Closed);
        };
        let mut place = place.lock();
        // The cell is added to the new parent before it is removed from the former parent. The next stop that closes
        // the barrier of the new parent finds it.
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
