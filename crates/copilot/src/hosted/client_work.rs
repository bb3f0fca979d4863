//! Work of a client that a session waits for. The handlers of the client run in another process.

use allstop_scope::{Ending, NotStarted, Registration, Scope, WorkSpec};

/// A requested handler of a client. Dropping this value before the answer reports that it is unknown whether the
/// handler still runs.
#[derive(Debug)]
pub(super) struct ClientWork(Option<Registration>);

impl ClientWork {
    /// Registers the work before the request is sent to the client. The SDKs cannot end such a handler.
    ///
    /// # Errors
    /// Returns an error if a stop came first.
    pub(super) fn register(scope: &Scope, work: WorkSpec) -> Result<Self, NotStarted> {
        let registration = scope.register_remote(work, || {})?;
        Ok(Self(Some(registration)))
    }

    /// Records that the client has answered.
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
