//! Marks of the stores that this process has open. The locks of SQLite belong to the process, and so does this list.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::files::FileId;

static STORES: Mutex<Option<HashMap<FileId, Weak<Mutex<()>>>>> = Mutex::new(None);

/// A store that is open. Must be dropped after the connection.
#[derive(Debug)]
pub(super) struct OpenMark(Arc<Mutex<()>>);

impl OpenMark {
    pub(super) fn of(store: FileId) -> Self {
        let mut stores = STORES.lock();
        let stores = stores.get_or_insert_default();
        stores.retain(|_, mark| mark.strong_count() > 0);
        let mark = stores
            .get(&store)
            .and_then(Weak::upgrade)
            .unwrap_or_default();
        stores.insert(store, Arc::downgrade(&mark));
        Self(mark)
    }

    /// Held while the store is checked and opened.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock()
    }

    /// True if this process has no other connection to the store.
    pub(super) fn is_only_one(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
