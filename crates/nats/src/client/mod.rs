//! The log and the link on the NATS servers.

mod append;
mod append_message;
mod attempts;
mod connect;
mod errors;
mod fetch;
mod link;
mod log;
mod positions;
mod presence;
mod publish;
mod store;
mod stream_lock;
mod streams;
mod subject;
mod tail;

pub use log::NatsLog;
