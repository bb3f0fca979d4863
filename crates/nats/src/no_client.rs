//! The log without the feature `client`. This log cannot be opened.

use std::sync::Arc;

use allstop_log::Log;
use allstop_scope::Scope;
use allstop_task::ClusterLink;
use tokio::sync::watch;

use crate::connect_error::ConnectError;
use crate::options::NatsOptions;

/// The log without the feature `client`. No value of this type exists, because the log cannot be opened.
#[derive(Debug, Clone)]
pub enum AbsentNatsLog {}

#[expect(clippy::unused_async, reason = "the log with a client awaits")]
impl AbsentNatsLog {
    /// Fails with [`ConnectError::NotBuilt`].
    pub async fn open(_options: NatsOptions, _scope: &Scope) -> Result<Self, ConnectError> {
        Err(ConnectError::NotBuilt)
    }

    /// The log as a trait object, for code that is independent of the store.
    pub fn as_log(&self) -> Arc<dyn Log> {
        match *self {}
    }

    /// The link between the managers of a cluster: the services that they share in addition to the log.
    pub async fn link(&self) -> Result<Arc<dyn ClusterLink>, ConnectError> {
        match *self {}
    }

    /// True while the process is connected to a server.
    pub fn connection(&self) -> watch::Receiver<bool> {
        match *self {}
    }
}
