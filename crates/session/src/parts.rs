//! Parts that servers attach to an open session, such as a list of the session's clients.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

type SessionPart = Arc<dyn Any + Send + Sync>;

/// The parts of a session, at most one of each type; `None` after the end of the session. A part may hold the session:
/// the end of the session breaks the reference cycle.
pub(crate) struct SessionParts(Mutex<Option<Vec<SessionPart>>>);

impl Default for SessionParts {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl SessionParts {
    /// Attaches a part. Replaces an attached part of this type.
    pub(crate) fn set<T: Any + Send + Sync>(&self, part: Arc<T>) {
        let former = self.take::<T>();
        if let Some(parts) = &mut *self.0.lock() {
            parts.push(part);
        }
        drop(former);
    }

    pub(crate) fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let parts = self.0.lock();
        let mut parts = parts.as_ref()?.iter();
        parts.find_map(|part| Arc::clone(part).downcast().ok())
    }

    pub(crate) fn take<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let mut parts = self.0.lock();
        let parts = parts.as_mut()?;
        let at = parts.iter().position(|part| part.is::<T>())?;
        parts.swap_remove(at).downcast().ok()
    }

    /// Drops all parts.
    pub(crate) fn end(&self) {
        let parts = self.0.lock().take();
        drop(parts);
    }
}
