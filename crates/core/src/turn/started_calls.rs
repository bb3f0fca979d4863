//! Ids of the calls of a turn. Copying the list and adding an id are cheap, even if there are many calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::CallId;

/// Ids of all calls that a turn has started.
///
/// A writer checks each append on a copy of the turn. Therefore a copy shares the ids with its original, and keeps the
/// ids that are added to the copy separately. After the copy is dropped, the original can add to the shared set again.
#[derive(Debug, Clone, Default)]
pub(super) struct StartedCalls {
    shared: Arc<BTreeSet<CallId>>,
    /// The ids that are not in the shared set.
    added: BTreeSet<CallId>,
}

impl StartedCalls {
    pub(super) fn contains(&self, id: &CallId) -> bool {
        self.shared.contains(id) || self.added.contains(id)
    }

    /// Adds an id that is not contained yet.
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

/// Compares the ids. It does not matter which of them are shared.
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
    fn copy_shares_the_ids_and_keeps_its_own_additions() {
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
        assert!(all.added.is_empty(), "the sole owner has one set");
        assert!(all.contains(&"call_1".into()) && all.contains(&"call_2".into()));
    }
}
