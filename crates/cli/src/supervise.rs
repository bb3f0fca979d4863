//! Signals and the clock beside whatever a command waits for.

use std::time::Instant;

use crate::control::{Control, ControlEffect};
use crate::signals::EndSignals;

/// Signals, and what they and the clock have come to so far.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) signals: EndSignals,
    pub(crate) control: Control,
}

impl Supervisor {
    pub(crate) fn new(signals: EndSignals, control: Control) -> Self {
        Self { signals, control }
    }

    /// The next thing to do.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> ControlEffect {
        loop {
            let moment = self.control.next_moment();
            let effect = tokio::select! {
                biased;
                signal = self.signals.next() => self.control.signal(signal, Instant::now()),
                () = until(moment) => self.control.on_clock(Instant::now()),
            };
            if effect != ControlEffect::Nothing {
                return effect;
            }
        }
    }

    /// Waits for something on the way out. A signal calls `hurry` with the stop or the force that it asks for. `None`: the
    /// moment of the exit has come.
    ///
    /// # Cancel safety
    /// As that of `wait`.
    pub(crate) async fn wait_to_exit<T>(
        &mut self,
        wait: impl Future<Output = T>,
        hurry: impl Fn(ControlEffect),
    ) -> Option<T> {
        self.control.end(Instant::now());
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                effect = self.next() => match effect {
                    ControlEffect::Exit => return None,
                    ControlEffect::Nothing => {}
                    effect => hurry(effect),
                },
                waited = &mut wait => return Some(waited),
            }
        }
    }
}

/// Waits for a moment, or for ever.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn until(moment: Option<Instant>) {
    match moment {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
