//! Time limits of waits, with the timer of the tree.

use std::time::Duration;

use crate::scope::Scope;

impl Scope {
    /// Waits for a future, but at most for `limit`. `None` if the limit passed. The timer belongs to the runtime of the
    /// tree's stops, so the caller needs no runtime with timers.
    ///
    /// # Cancel safety
    /// Cancel safe if `future` is cancel safe.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let late = {
            let _timers = self.env().control().enter();
            tokio::time::sleep(limit)
        };
        tokio::select! {
            biased;
            output = future => Some(output),
            () = late => None,
        }
    }
}
