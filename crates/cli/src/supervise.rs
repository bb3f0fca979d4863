//! Watches signals and the clock while a command waits.

use std::time::Instant;

use crate::control::{Control, ControlEffect};
use crate::signals::EndSignals;

/// Signals, and the shutdown state that results from the signals and the clock.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) signals: EndSignals,
    pub(crate) control: Control,
}

impl Supervisor {
    pub(crate) fn new(signals: EndSignals, control: Control) -> Self {
        Self { signals, control }
    }

    /// Waits for a signal or for the next time in the shutdown state, and returns the resulting action.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> ControlEffect {
        loop {
            if let Some(force) = self.control.follow_up(Instant::now()) {
                return force;
            }
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

    /// Waits for the future `wait` during the shutdown. A signal leads to a call of `hurry` with the resulting stop or
    /// force. `None` if the exit time is reached first.
    ///
    /// # Cancel safety
    /// Depends on `wait`.
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

/// Waits until a time, or for ever.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn until(moment: Option<Instant>) {
    match moment {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
