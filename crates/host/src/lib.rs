//! Parts that every server needs, for any protocol.
//!
//! - [`accept_connections`] is the accept loop. Each connection is work of a scope (a node in the tree of all work).
//!   Therefore a stop of the server ends the connection, and the receipt of the stop lists the connection.
//! - [`Places`] limits the connections of a server, and the memory for responses that clients do not take.
//! - [`FairBudget`] limits the memory for the responses that a server builds, and gives each user a share.
//! - [`FolderLock`] and [`replace_file`] change a file of the user that several processes change.
//! - [`finish_work`] runs work to its end, even if its client leaves.
//!
//! The open sessions of a server are in the registry of its system (`allstop_session::SessionRegistry`).
//!
//! ```no_run
//! use allstop_host::{PlaceLimits, Places, accept_connections};
//! use allstop_scope::{RootOptions, Scope};
//! use tokio::io::AsyncWriteExt as _;
//! use tokio::net::TcpListener;
//!
//! # async fn example() -> std::io::Result<()> {
//! let scope = Scope::root("server", RootOptions::current());
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let places = Places::new(PlaceLimits::of_connections(1_000));
//! accept_connections(listener, scope, places, |mut stream, _cx, _place| async move {
//!     let _gone = stream.write_all(b"hello").await;
//! })
//! .await;
//! # Ok(())
//! # }
//! ```

mod accept;
mod fair_budget;
mod finish;
mod places;
mod private_file;

pub use accept::{Listener, accept_connections};
pub use fair_budget::{BudgetPermit, FairBudget};
pub use finish::finish_work;
pub use places::{Place, PlaceGuard, PlaceLimits, Places, TooManyUnsentBytes, UnsentBytes};
pub use private_file::{FolderLock, replace_file};
