//! Background work of a session in the order in which it started, indexed by id.

use std::collections::HashMap;

use crate::ids::BackgroundId;
use crate::turn::summary::RecordedWork;

/// List with an index, because a session may have started thousands of pieces of background work.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct BackgroundIndex {
    works: Vec<RecordedWork>,
    places: HashMap<BackgroundId, usize>,
}

impl BackgroundIndex {
    pub(super) fn all(&self) -> &[RecordedWork] {
        &self.works
    }

    pub(super) fn get(&self, id: &BackgroundId) -> Option<&RecordedWork> {
        self.works.get(*self.places.get(id)?)
    }

    pub(super) fn get_mut(&mut self, id: &BackgroundId) -> Option<&mut RecordedWork> {
        self.works.get_mut(*self.places.get(id)?)
    }

    /// Adds work with a new id.
    pub(super) fn push(&mut self, work: RecordedWork) {
        self.places.insert(work.id.clone(), self.works.len());
        self.works.push(work);
    }

    /// Copies only the work with these ids. A check of records about background work needs no other work.
    pub(super) fn only<'a>(&self, ids: impl Iterator<Item = &'a BackgroundId>) -> Self {
        let mut only = Self::default();
        for id in ids {
            if let Some(work) = self.get(id)
                && only.get(id).is_none()
            {
                only.push(work.clone());
            }
        }
        only
    }
}

impl From<Vec<RecordedWork>> for BackgroundIndex {
    fn from(works: Vec<RecordedWork>) -> Self {
        let mut all = Self::default();
        for work in works {
            all.push(work);
        }
        all
    }
}
