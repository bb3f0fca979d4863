//! The log without the feature `client`: it cannot be opened.

use std::sync::Arc;

use allstop_log::Log;
use allstop_scope::Scope;
use allstop_task::ClusterLink;
use tokio::sync::watch;

use crate::connect_error::ConnectError;
use crate::options::NatsOptions;

/// There is none in this program.
#[derive(Debug, Clone)]
pub enum AbsentNatsLog {}

#[expect(clippy::unused_async, reason = "the log with a client awaits")]
impl AbsentNatsLog {
    /// Fails with [`ConnectError::NotBuilt`].
    pub async fn open(_options: NatsOptions, _scope: &Scope) -> Result<Self, ConnectError> {
        Err(ConnectError::NotBuilt)
    }

    /// The log, for code that knows no store.
    pub fn as_log(&self) -> Arc<dyn Log> {
        match *self {}
    }

    /// The link of a cluster's managers.
    pub async fn link(&self) -> Result<Arc<dyn ClusterLink>, ConnectError> {
        match *self {}
    }

    /// True while there is a connection to a server.
    pub fn connection(&self) -> watch::Receiver<bool> {
        match *self {}
    }
}
