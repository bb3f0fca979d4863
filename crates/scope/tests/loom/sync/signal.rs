//! The part of tokio's `Notify` that a stop uses: a permit that one waiter takes.

use std::task::{Poll, Waker};

use super::Mutex;

pub(crate) struct Notify {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    permit: bool,
    waiting: Vec<Waker>,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
        }
    }

    /// Wakes all waiters, and one of them takes the permit. The permit is not lost if a waiter was dropped.
    pub(crate) fn notify_one(&self) {
        let mut state = self.state.lock();
        state.permit = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) async fn notified(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.state.lock();
            if std::mem::take(&mut state.permit) {
                return Poll::Ready(());
            }
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
