//! Parts that every server needs, for any protocol.
//!
//! - [`accept_connections`] is the accept loop: each connection is work of a scope, so a stop of the server ends it and
//!   accounts for it.
//! - [`finish_work`] runs work to its end although the client that asked for it leaves.
//!
//! The open sessions of a server are in the registry of its system (`allstop_session::SessionRegistry`).

mod accept;
mod finish;

pub use accept::{Listener, accept_connections};
pub use finish::finish_work;
