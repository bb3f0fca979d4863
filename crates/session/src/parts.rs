//! Parts that servers attach to an open session, such as its clients.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::session::Session;

type SessionPart = Arc<dyn Any + Send + Sync>;

/// The parts of a session, at most one of each type; `None` once the session has ended. A part may hold the session: its
/// end breaks the circle.
pub(crate) struct SessionParts(Mutex<Option<Vec<SessionPart>>>);

impl Default for SessionParts {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl SessionParts {
    /// Drops all parts.
    pub(crate) fn end(&self) {
        let parts = self.0.lock().take();
        drop(parts);
    }
}

impl Session {
    /// Attaches a part until the session has ended, in the place of one of that type.
    pub fn set_part<T: Any + Send + Sync>(&self, part: Arc<T>) {
        let former = self.take_part::<T>();
        if let Some(parts) = &mut *self.inner.parts.0.lock() {
            parts.push(part);
        }
        drop(former);
    }

    /// The attached part of a type.
    pub fn part<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let parts = self.inner.parts.0.lock();
        let mut parts = parts.as_ref()?.iter();
        parts.find_map(|part| Arc::clone(part).downcast().ok())
    }

    /// Detaches the part of a type.
    pub fn take_part<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let mut parts = self.inner.parts.0.lock();
        let parts = parts.as_mut()?;
        let at = parts.iter().position(|part| part.is::<T>())?;
        parts.swap_remove(at).downcast().ok()
    }
}
