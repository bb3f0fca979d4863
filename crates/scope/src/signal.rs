//! A signal that is set once and stays set. It works like a cancellation token, but without a tree of tokens.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Signal that is set once. When it is set, all waiters continue, and later waiters do not wait. Allocates no memory.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    is_set: AtomicBool,
    /// True if the signal is set for all scopes that share it. A waiter then needs no further check.
    is_set_for_all: AtomicBool,
    waiting: Notify,
}

impl StopSignal {
    /// Sets the signal and wakes the waiters. Further calls change nothing.
    pub(crate) fn set_and_wake(&self) {
        if self.set() {
            self.wake();
        }
    }

    /// Sets the signal without waking the waiters. The caller must call [`StopSignal::wake`] afterwards. Returns true
    /// if the signal was not set before.
    pub(crate) fn set(&self) -> bool {
        !self.is_set.swap(true, Ordering::AcqRel)
    }

    /// Wakes the waiters of a signal that has been set.
    pub(crate) fn wake(&self) {
        self.waiting.notify_waiters();
    }

    /// Sets the signal for all scopes that share it, and wakes their waiters.
    pub(crate) fn set_for_all(&self) {
        self.set();
        self.is_set_for_all.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_set_for_all(&self) -> bool {
        self.is_set_for_all.load(Ordering::Acquire)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Resolves when the signal is set.
    pub(crate) async fn wait(&self) {
        self.wait_for(|| self.is_set()).await;
    }

    /// Resolves when the signal is set for one of the scopes that share it. Checks `is_mine` at each wake-up.
    pub(crate) async fn wait_for(&self, is_mine: impl Fn() -> bool) {
        loop {
            // Created before the check, so that a signal between the check and the wait wakes this waiter.
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
        let mut waits = std::pin::pin!(signal.wait());
        tokio::select! {
            biased;
            () = waits.as_mut() => panic!("nobody has given it"),
            () = std::future::ready(()) => {}
        }
        signal.set_and_wake();
        signal.set_and_wake();
        assert!(signal.is_set());
        waits.await;
        signal.wait().await;
    }

    #[test]
    fn no_signal_is_lost_between_check_and_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a thread is all it needs");
        for _ in 0..2_000 {
            let signal = StopSignal::default();
            std::thread::scope(|threads| {
                threads.spawn(|| signal.set_and_wake());
                let limit = std::time::Duration::from_secs(20);
                let waited = async { tokio::time::timeout(limit, signal.wait()).await };
                runtime.block_on(waited).expect("the signal was given");
            });
        }
    }
}
