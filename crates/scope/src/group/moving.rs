//! The move of a group of scopes from one parent scope to another.
//!
//! A group that is being moved is always below at least one of the two parents, and for a short time below both. So a
//! stop of either parent finds the group. If a stop covers the old parent, the group stays there and does not escape
//! the stop. The group stays registered during the move, so its work is still counted.

use std::sync::Arc;

use super::{Node, ParentLink, TreePosition};
use crate::barrier::NotStarted;

impl Node {
    /// Moves this scope, with all scopes below it, below another scope. From now on, stops of the new parent cover this
    /// scope, and stops of the former parent do not.
    ///
    /// # Errors
    /// If a stop covers either parent, or the new parent is closed. The scope then stays below its former parent. A
    /// stop of the new parent during the attempt may still cover the scope.
    pub(crate) fn move_below(&self, to: &Node) -> Result<(), NotStarted> {
        let TreePosition::Movable(position) = &self.group.position else {
            debug_assert!(false, "this scope was not made to move");
            return Err(NotStarted::Closed);
        };
        let mut position = position.lock();
        // The group is added to the new parent before it is removed from the former parent. From now on, a stop that
        // closes the barrier of the new parent finds the group.
        let moved = {
            let mut there = to.group.state.lock();
            there.entries.check(to.index)?;
            let child = (to.index, Arc::downgrade(&self.group));
            let key = there.children.insert(child);
            ParentLink::of(to.clone(), key, &there)
        };
        let gone = {
            let mut here = position.parent.group.state.lock();
            match here.entries.cause(position.parent.index) {
                Some(cause) => Err(NotStarted::Stopped(cause.clone())),
                None => Ok(here.children.remove(position.key)),
            }
        };
        match gone {
            Ok(former) => {
                let former = (former, std::mem::replace(&mut *position, moved));
                drop(position);
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
