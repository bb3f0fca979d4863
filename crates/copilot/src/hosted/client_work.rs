//! Work of a client that a session waits for: its handlers run in another process.

use allstop_scope::{Ending, NotStarted, Registration, Scope, WorkSpec};

/// A handler of a client that was asked. Dropping it before the answer says that nobody knows whether it still runs.
#[derive(Debug)]
pub(super) struct ClientWork(Option<Registration>);

impl ClientWork {
    /// Registers the work, before the client is asked. The SDKs have no way to end such a handler.
    ///
    /// # Errors
    /// A stop came first.
    pub(super) fn register(scope: &Scope, work: WorkSpec) -> Result<Self, NotStarted> {
        let registration = scope.register_remote(work, || {})?;
        Ok(Self(Some(registration)))
    }

    /// The client has answered.
    pub(super) fn answered(mut self) {
        if let Some(registration) = self.0.take() {
            registration.finish(Ending::Returned);
        }
    }
}

impl Drop for ClientWork {
    fn drop(&mut self) {
        if let Some(mut registration) = self.0.take() {
            let note = "its handler runs in the client, which was not asked to end it";
            registration.details_mut().note = Some(note.into());
            registration.finish(Ending::NotConfirmed);
        }
    }
}
