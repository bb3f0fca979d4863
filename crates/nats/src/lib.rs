//! The log on NATS JetStream: several machines share one store.
//!
//! [`NatsLog`] keeps all streams of the log in one stream of JetStream. Each stream of the log has a separate subject.
//! An append is one message that contains all of its records. JetStream accepts the message only if the append expects
//! the actual last message of the subject. So at most one of two writers succeeds, even if their information is
//! outdated.
//!
//! The servers determine the durability. An acknowledged append is stored on a quorum of the replicas. With
//! `sync_interval: always` in the configuration of the servers, the append also survives a power loss of all replicas.
//! Without this setting, such a power loss can lose the append.

//!
//! Without the feature `client`, the crate contains only the options and the errors. An attempt to open the log then
//! fails with [`ConnectError::NotBuilt`].
//!
//! ```no_run
//! use allstop_nats::{NatsLog, NatsOptions};
//! use allstop_scope::{RootOptions, Scope};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), allstop_nats::ConnectError> {
//! let scope = Scope::root("program", RootOptions::current());
//! let log = NatsLog::open(NatsOptions::new("nats://127.0.0.1:4222"), &scope).await?;
//! # drop(log);
//! # Ok(())
//! # }
//! ```

mod connect_error;
mod options;

pub use connect_error::ConnectError;
pub use options::NatsOptions;

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
pub use client::NatsLog;

#[cfg(not(feature = "client"))]
mod no_client;
#[cfg(not(feature = "client"))]
pub use no_client::AbsentNatsLog as NatsLog;
