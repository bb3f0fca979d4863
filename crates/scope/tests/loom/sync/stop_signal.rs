//! The signal of a scope, and tokio-util's `CancellationToken` for code that does not use scopes.
//!
//! loom does not observe the operations of these types as steps. Each operation belongs to the step before it. No
//! tested rule depends on an interleaving between a step of the scope and a step of its signal. Both sides use memory
//! fences, as tokio's types do for their own state.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use loom::sync::atomic::{Ordering, fence};

#[derive(Default)]
pub(crate) struct StopSignal {
    state: Mutex<SignalState>,
}

#[derive(Default)]
struct SignalState {
    is_set: bool,
    is_set_for_all: bool,
    waiting: Vec<Waker>,
}

impl StopSignal {
    fn state(&self) -> MutexGuard<'_, SignalState> {
        self.state.lock().expect("a panic ends the model")
    }

    pub(crate) fn set_and_wake(&self) {
        self.set();
        self.wake();
    }

    pub(crate) fn set(&self) -> bool {
        !std::mem::replace(&mut self.state().is_set, true)
    }

    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        let mut state = self.state();
        let waiting = std::mem::take(&mut state.waiting);
        // loom observes the wake-up as a step. During this step, other threads must be able to lock the signal.
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn set_for_all(&self) {
        self.set();
        self.state().is_set_for_all = true;
        self.wake();
    }

    pub(crate) fn is_set_for_all(&self) -> bool {
        self.state().is_set_for_all
    }

    pub(crate) fn is_set(&self) -> bool {
        self.state().is_set
    }

    pub(crate) async fn wait(&self) {
        self.wait_for(|| self.is_set()).await;
    }

    pub(crate) async fn wait_for(&self, is_mine: impl Fn() -> bool) {
        std::future::poll_fn(|cx| {
            // Registers the waker before the check. loom observes the check as a step, so the signal must not be locked
            // during the check.
            self.state().waiting.push(cx.waker().clone());
            fence(Ordering::SeqCst);
            if is_mine() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// Not used by the models, because a scope creates a token only on request.
#[derive(Clone, Default)]
pub(crate) struct CancellationToken(Arc<StopSignal>);

impl CancellationToken {
    pub(crate) fn cancel(&self) {
        self.0.set_and_wake();
    }

    pub(crate) fn child_token(&self) -> Self {
        self.clone()
    }
}
