//! The log on NATS JetStream: several machines share one store.
//!
//! [`NatsLog`] keeps all streams of the log in one stream of JetStream, each under a subject of its own. An append is one
//! message with all its records, and JetStream takes it only if the last message of its subject is the one that the
//! append expects. So of two writers one wins, whatever else they believe.
//!
//! The promise depends on the servers: an acknowledged append is on a quorum of the replicas. It survives a power loss of
//! all of them only with `sync_interval: always` in their configuration.

mod append;
mod append_message;
mod attempts;
mod connect;
mod errors;
mod fetch;
mod link;
mod log;
mod options;
mod positions;
mod presence;
mod publish;
mod store;
mod stream_lock;
mod streams;
mod subject;
mod tail;

pub use connect::ConnectError;
pub use link::NatsLink;
pub use log::NatsLog;
pub use options::NatsOptions;
