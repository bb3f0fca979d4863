//! The log on NATS JetStream: several machines share one store.
//!
//! [`NatsLog`] keeps all streams of the log in one stream of JetStream, each under a subject of its own. An append is one
//! message with all its records, and JetStream takes it only if the last message of its subject is the one that the
//! append expects. So of two writers one wins, whatever else they believe.
//!
//! The promise depends on the servers: an acknowledged append is on a quorum of the replicas. It survives a power loss of
//! all of them only with `sync_interval: always` in their configuration.

//!
//! Without the feature `client` there are only the options and the errors: in a program without it, opening the
//! log fails with that reason.

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
