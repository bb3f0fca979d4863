//! The signals that end runs, as a stream.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::control::Signal;

/// The signals that end runs. From its making on none of them ends the process by itself.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    /// Takes the signals over.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let of = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
            hang_up: of(SignalKind::hangup())?,
        })
    }

    /// The next one.
    ///
    /// # Cancel safety
    /// Cancel safe: a signal that comes meanwhile is the next one's.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.terminate.recv() => Signal::Terminate,
            Some(()) = self.hang_up.recv() => Signal::HangUp,
            // The streams end only with the runtime.
            else => std::future::pending().await,
        }
    }
}
