//! The log on NATS JetStream: several machines share one store.
//!
//! [`NatsLog`] keeps all streams of the log in one stream of JetStream, each under a separate subject. An append is one
//! message with all its records. JetStream accepts the message only if the append expects the last message of its
//! subject. So at most one of two writers wins, even if their information is outdated.
//!
//! The durability depends on the servers: an acknowledged append is on a quorum of the replicas. The append survives a
//! power loss of all replicas only with `sync_interval: always` in their configuration.

//!
//! Without the feature `client`, the crate contains only the options and the errors. Opening the log then fails with
//! [`ConnectError::NotBuilt`].

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
