//! Commands that a server runs for its clients and that belong to no session, as other processes access them.

use std::fmt;

use allstop_core::{Cause, Receipt, TaskId};
use futures::future::BoxFuture;

use crate::protocol::OwnedCommandReport;

/// The commands of a server.
pub trait OwnedCommands: fmt::Debug + Send + Sync {
    /// The running commands.
    fn report(&self) -> Vec<OwnedCommandReport>;

    /// Dry run of a stop. `None` if the command does not run.
    fn preview(&self, command: TaskId, cause: Cause) -> BoxFuture<'static, Option<Receipt>>;

    /// Stops a command; with `now`, uses force at once. `None` if the command does not run.
    ///
    /// # Cancel safety
    /// Dropping the future does not revoke the stop.
    fn stop(&self, command: TaskId, cause: Cause, now: bool)
    -> BoxFuture<'static, Option<Receipt>>;
}
