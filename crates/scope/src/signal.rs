//! A signal that is set once and stays set: like a cancellation token, without a tree of tokens.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Signal that is set once. Resumes present and later waiters. Allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    given: AtomicBool,
    /// True if the signal is set for all scopes that share it. Then no waiter has to check further.
    given_to_all: AtomicBool,
    waiting: Notify,
}

impl StopSignal {
    /// Sets the signal and wakes the waiters. Further calls change nothing.
    pub(crate) fn give(&self) {
        if self.set() {
            self.wake();
        }
    }

    /// Sets the signal without waking the waiters. The caller must call [`StopSignal::wake`] afterwards. Returns true
    /// if the signal was not set before.
    pub(crate) fn set(&self) -> bool {
        !self.given.swap(true, Ordering::AcqRel)
    }

    /// Wakes the waiters of a signal that has been set.
    pub(crate) fn wake(&self) {
        self.waiting.notify_waiters();
    }

    /// Sets the signal for all scopes that share it, and wakes them.
    pub(crate) fn give_to_all(&self) {
        self.set();
        self.given_to_all.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_given_to_all(&self) -> bool {
        self.given_to_all.load(Ordering::Acquire)
    }

    pub(crate) fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Resolves when the signal is set.
    pub(crate) async fn given(&self) {
        self.given_to(|| self.is_given()).await;
    }

    /// Resolves when the signal is set for one of the scopes that share it. Checks `is_mine` at each wake-up.
    pub(crate) async fn given_to(&self, is_mine: impl Fn() -> bool) {
        loop {
            // Created before the check, so that a signal in between wakes this waiter.
            let woken = self.waiting.notified();
            if is_mine() {
                return;
            }
            woken.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn signal_resumes_present_and_later_waiters() {
        let signal = StopSignal::default();
        let mut waits = std::pin::pin!(signal.given());
        tokio::select! {
            biased;
            () = waits.as_mut() => panic!("nobody has given it"),
            () = std::future::ready(()) => {}
        }
        signal.give();
        signal.give();
        assert!(signal.is_given());
        waits.await;
        signal.given().await;
    }

    #[test]
    fn no_signal_is_lost_between_look_and_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a thread is all it needs");
        for _ in 0..2_000 {
            let signal = StopSignal::default();
            std::thread::scope(|threads| {
                threads.spawn(|| signal.give());
                let limit = std::time::Duration::from_secs(20);
                let waited = async { tokio::time::timeout(limit, signal.given()).await };
                runtime.block_on(waited).expect("the signal was given");
            });
        }
    }
}
