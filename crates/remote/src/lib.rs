//! Stops from other terminals: each process that owns sessions listens on its own Unix socket. Any other process of the
//! same user can list, watch and stop the work of these sessions.
//!
//! - **Owner.** [`OwnedSessions`] are the sessions of a process, and [`RemoteListener`] is the process's socket in a
//!   [`SocketFolder`]. A process whose only session belongs to its terminal uses [`TerminalSession`]. The [`Announcer`]
//!   of this session sends the terminal's messages to watchers, in addition to the events of the session.
//! - **Requester.** [`processes`] and [`each_process`] find the processes of the user. A [`RemoteProcess`] reports its
//!   work ([`ProcessReport`]), stops work ([`RemoteStopParams`]) and shows a session ([`RemoteWatch`], [`WatchEvent`]).
//!
//! Both sides use JSON-RPC with Content-Length frames. Events contain facts; the side that shows an event converts it
//! to text for people.
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
//! 1. A process sends nothing to a peer of another user, and no request to a socket of another user.
//! 2. A stop is accepted before the process waits for the receipt, which is the result of the stop. The stop continues
//!    if the peer that requested it disconnects.
//! 3. The owner waits for no watcher.
//! 4. The process removes its socket when it ends. After a crash, the next process that lists the folder removes the
//!    socket.

mod announcer;
mod client;
mod connection;
mod folder;
mod listener;
mod owned;
mod owned_commands;
mod peer;
mod protocol;
mod question;
mod terminal_session;
mod turn_snapshot;
mod watch_event;
mod watched;

pub use announcer::{Announcer, RemoteStop};
pub use client::{
    RemoteError, RemoteProcess, RemoteWatch, UnansweredStop, each_process, processes,
};
pub use folder::{ProcessNumber, SocketFolder};
pub use listener::RemoteListener;
pub use owned::{ClientQuestions, OwnedSessions};
pub use owned_commands::OwnedCommands;
pub use protocol::{
    AnswerParams, OwnedCommandReport, OwnedSessionReport, ProcessReport, RemoteExtent,
    RemoteStopParams, RunningTurnReport, StopResult, WorkReport,
};
pub use question::ShownQuestion;
pub use terminal_session::TerminalSession;
pub use watch_event::{WatchEvent, WatcherAnswer};
