//! Ids of the calls of a turn, cheap to copy and to add to however many there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::CallId;

/// The ids of all calls that a turn has started.
///
/// A writer checks each append on a copy of the turn. So a copy shares the ids with its original and keeps those that
/// it adds to itself; the original, alone again when the copy is gone, adds to the shared set.
#[derive(Debug, Clone, Default)]
pub(super) struct StartedCalls {
    shared: Arc<BTreeSet<CallId>>,
    /// Disjoint from those that are shared.
    added: BTreeSet<CallId>,
}

impl StartedCalls {
    pub(super) fn contains(&self, id: &CallId) -> bool {
        self.shared.contains(id) || self.added.contains(id)
    }

    /// Adds an id that it does not contain yet.
    pub(super) fn insert(&mut self, id: CallId) {
        match Arc::get_mut(&mut self.shared) {
            Some(alone) => {
                alone.append(&mut self.added);
                alone.insert(id);
            }
            None => {
                self.added.insert(id);
            }
        }
    }

    fn len(&self) -> usize {
        self.shared.len() + self.added.len()
    }
}

/// Equal ids, however they are shared.
impl PartialEq for StartedCalls {
    fn eq(&self, other: &Self) -> bool {
        let mut ids = self.shared.iter().chain(&self.added);
        self.len() == other.len() && ids.all(|id| other.contains(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_shares_the_ids_and_keeps_its_own() {
        let mut all = StartedCalls::default();
        for step in 0..1_000 {
            all.insert(format!("step_{step}").into());
        }
        let mut copy = all.clone();
        copy.insert("call_1".into());
        assert!(Arc::ptr_eq(&all.shared, &copy.shared), "nothing was copied");
        assert_eq!(copy.added.len(), 1);
        assert!(copy.contains(&"call_1".into()) && !all.contains(&"call_1".into()));
        assert_ne!(all, copy);
        drop(copy.clone());
        all.insert("call_1".into());
        assert_eq!(all, copy);
        drop(copy);
        all.insert("call_2".into());
        assert!(all.added.is_empty(), "alone again, it has one set");
        assert!(all.contains(&"call_1".into()) && all.contains(&"call_2".into()));
    }
}
