//! Work of a client that a session waits for: handlers that run in the client's process.

use allstop_scope::{Ending, NotStarted, Registration, Scope, WorkSpec};

/// A requested handler of a client. If this value is dropped before the answer, the receipt of a stop reports that the
/// handler may still run.
#[derive(Debug)]
pub(super) struct ClientWork(Option<Registration>);

impl ClientWork {
    /// Registers the work before the request is sent to the client. The SDKs provide no way to end such a handler.
    ///
    /// # Errors
    /// Returns an error if the scope was stopped before the registration.
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
