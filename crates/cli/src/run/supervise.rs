//! Races what a run waits for against signals and the last moment.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::control::{Control, Effect};
use crate::signals::Signals;

/// Signals, and what they have come to so far.
#[derive(Debug)]
pub(super) struct Supervisor {
    signals: Signals,
    pub(super) control: Control,
}

/// Why a wait has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// An effect ended it.
    Stopped,
    /// The last moment came: the process exits with what it knows.
    LastMoment,
}

impl Supervisor {
    pub(super) fn new(signals: Signals, control: Control) -> Self {
        Self { signals, control }
    }

    /// Waits for `wait`; meanwhile signals become effects, which `carry_out` carries out.
    pub(super) async fn race<T>(
        &mut self,
        wait: impl Future<Output = T>,
        mut carry_out: impl FnMut(Effect) -> ControlFlow<()>,
    ) -> Result<T, Cut> {
        tokio::pin!(wait);
        loop {
            let last_moment = self.control.last_moment();
            let signal = tokio::select! {
                biased;
                signal = self.signals.next() => signal,
                result = &mut wait => return Ok(result),
                () = until(last_moment) => return Err(Cut::LastMoment),
            };
            let effect = self.control.signal(signal, Instant::now());
            if effect == Effect::Nothing {
                continue;
            }
            if carry_out(effect).is_break() {
                return Err(Cut::Stopped);
            }
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
