//! Parts that every server needs, for any protocol.
//!
//! - [`accept_connections`] is the accept loop. Each connection is work of a scope, so a stop of the server ends the
//!   connection and lists it in the receipt.
//! - [`finish_work`] runs work to its end, even if its client leaves.
//!
//! The registry of a server's system contains the open sessions (`allstop_session::SessionRegistry`).

mod accept;
mod finish;

pub use accept::{Listener, accept_connections};
pub use finish::finish_work;
