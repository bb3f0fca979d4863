//! Stops from other terminals: each process that owns sessions listens on a Unix socket of its own, and any process of the
//! same user can list its work, watch it and stop it.
//!
//! `protocol` and `watch_event` are what is said, in JSON-RPC with Content-Length frames; `folder` is where the sockets are;
//! `owned`, `listener` and `connection` are the side of the owner, `client` the other side. `watched` follows the events of a
//! session for its watchers, and keeps a picture of the running turn (`turn_picture`). `terminal_session` is for processes whose
//! only session belongs to their terminal; its `announcer` tells watchers what stands there beside the events.
//!
//! Invariants:
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
mod terminal_session;
mod turn_picture;
mod watch_event;
mod watched;

pub(crate) use announcer::RemoteStop;
pub(crate) use client::{RemoteError, RemoteProcess, each_process, processes};
pub(crate) use folder::{ProcessNumber, socket_folder};
pub(crate) use listener::RemoteListener;
pub(crate) use owned::{ClientQuestions, OwnedSessions};
pub(crate) use protocol::{
    AnswerParams, OwnedSessionReport, ProcessReport, RemoteExtent, RemoteStopParams,
    RunningTurnReport, WorkReport,
};
pub(crate) use terminal_session::TerminalSession;
pub(crate) use watch_event::{WatchEvent, WatcherAnswer};
