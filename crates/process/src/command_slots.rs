//! Limit of the commands that run at the same time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::launch_error::LaunchError;

/// Slots of running commands.
#[derive(Debug)]
pub(crate) struct CommandSlots {
    free: Arc<Semaphore>,
    max: usize,
}

/// Slot of one command. It is free again when this value is dropped.
#[derive(Debug)]
pub(crate) struct CommandSlot(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl CommandSlots {
    pub(crate) fn new(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(max)),
            max,
        }
    }

    /// Waits for a free slot, and takes it.
    ///
    /// # Errors
    /// If no slot is free within this time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn take(&self, wait_max: Duration) -> Result<CommandSlot, LaunchError> {
        let free = Arc::clone(&self.free).acquire_owned();
        match timeout(wait_max, free).await {
            Ok(free) => Ok(CommandSlot(free.expect("the semaphore is never closed"))),
            Err(_elapsed) => Err(LaunchError::TooManyCommands { max: self.max }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn commands_wait_for_each_other_and_the_error_names_the_limit() {
        let slots = CommandSlots::new(1);
        let first = slots.take(WAIT).await.unwrap();
        let full = slots.take(WAIT).await.unwrap_err().to_string();
        assert!(
            full.starts_with("1 commands run") && full.contains("ulimit -n"),
            "{full}"
        );
        let (mut second, mut third) = (Box::pin(slots.take(WAIT)), Box::pin(slots.take(WAIT)));
        assert!(futures::poll!(&mut second).is_pending());
        assert!(futures::poll!(&mut third).is_pending());
        drop(first);
        let second = second.await.unwrap();
        assert!(futures::poll!(&mut third).is_pending());
        drop(second);
        drop(third.await.unwrap());
    }
}
