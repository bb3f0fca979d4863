//! Stops from other terminals: each process that owns sessions listens on a Unix socket of its own, and any process of the
//! same user can list its work, watch it and stop it.
//!
//! - **Owner.** [`OwnedSessions`] are the sessions of a process, and [`RemoteListener`] is its socket in a [`SocketFolder`].
//!   A process whose only session belongs to its terminal uses [`TerminalSession`]; its [`Announcer`] tells watchers what
//!   the terminal shows beside the events of the session.
//! - **Asker.** [`processes`] and [`each_process`] find the processes of the user. A [`RemoteProcess`] reports
//!   ([`ProcessReport`]), stops ([`RemoteStopParams`]) and shows a session ([`RemoteWatch`], [`WatchEvent`]).
//!
//! They speak JSON-RPC with Content-Length frames. Events are facts: words for people belong to the side that shows them.
//!
//! # Example
//!
//! Lists the open sessions of this user, as `allstop ps` does:
//!
//! ```
//! use allstop_remote::{SocketFolder, processes};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! # let of_test = tempfile::tempdir()?;
//! # let runtime_folder = Some(of_test.path().to_owned());
//! let folder = SocketFolder::of_user(runtime_folder); // the value of `XDG_RUNTIME_DIR`
//! for (process, report) in processes(&folder).await? {
//!     match report {
//!         Ok(report) => println!("{} has {} sessions", process.pid(), report.sessions.len()),
//!         Err(error) => println!("{error}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! 1. A peer of another user is told nothing, and a socket of another user is not talked to.
//! 2. A stop is accepted before anything of its receipt is waited for, and goes on if its peer leaves.
//! 3. The owner waits for no watcher.
//! 4. The socket is gone with the process. After a crash the next one that looks removes it.

mod announcer;
mod client;
mod connection;
mod folder;
mod listener;
mod owned;
mod peer;
mod protocol;
mod question;
mod terminal_session;
mod turn_picture;
mod watch_event;
mod watched;

pub use announcer::{Announcer, RemoteStop};
pub use client::{
    RemoteError, RemoteProcess, RemoteWatch, UnansweredStop, each_process, processes,
};
pub use folder::{ProcessNumber, SocketFolder};
pub use listener::RemoteListener;
pub use owned::{ClientQuestions, OwnedSessions};
pub use protocol::{
    AnswerParams, OwnedSessionReport, ProcessReport, RemoteExtent, RemoteStopParams,
    RunningTurnReport, WorkReport,
};
pub use question::ShownQuestion;
pub use terminal_session::TerminalSession;
pub use watch_event::{WatchEvent, WatcherAnswer};
