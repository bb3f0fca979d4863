//! Values that are set once.

use std::task::{Poll, Waker};

use super::Mutex;

/// Replaces two types: the standard library's `OnceLock`, which loom does not provide, and tokio's `SetOnce`, which
/// also supports waiting. As with these types, if `set` fails, the caller can read the value that another caller has
/// set.
///
/// The lock makes each operation a single step, as the contract of both types requires. The models do not test the
/// implementation of these types.
pub(crate) struct SetOnce<T> {
    value: std::sync::OnceLock<T>,
    waiting: Mutex<Vec<Waker>>,
}

pub(crate) type OnceLock<T> = SetOnce<T>;

impl<T> Default for SetOnce<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for SetOnce<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> SetOnce<T> {
    pub(crate) fn new() -> Self {
        Self {
            value: std::sync::OnceLock::new(),
            waiting: Mutex::default(),
        }
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let mut waiting = self.waiting.lock();
        self.value.set(value)?;
        let waiting = {
            let woken = std::mem::take(&mut *waiting);
            drop(waiting);
            woken
        };
        waiting.into_iter().for_each(Waker::wake);
        Ok(())
    }

    pub(crate) fn get(&self) -> Option<&T> {
        let _one_step = self.waiting.lock();
        self.value.get()
    }

    pub(crate) async fn wait(&self) -> &T {
        std::future::poll_fn(|cx| {
            let mut waiting = self.waiting.lock();
            if let Some(value) = self.value.get() {
                return Poll::Ready(value);
            }
            waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}
