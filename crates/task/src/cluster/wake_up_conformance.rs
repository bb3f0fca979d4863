//! Checks that an implementation of [`WakeUpQueue`] follows its rules.
//!
//! [`wake_up_conformance!`](crate::wake_up_conformance!) creates a test of each check for one kind of queue. The
//! expression in the call opens a new queue, in a smart pointer. If another value must exist as long as the queue, the
//! expression also returns this value:
//!
//! ```
//! # mod tests {
//! allstop_task::wake_up_conformance!(memory, async {
//!     (std::sync::Arc::new(allstop_task::MemoryLink::new()), ())
//! });
//! # }
//! ```
//!
//! A check panics if the queue violates a rule.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::{join_all, poll_immediate};
use tokio::time::timeout;

use super::link::{HeldWakeUp, WakeUpQueue};

/// Longest wait for a wake-up. A queue may deliver a wake-up that no worker holds only after some seconds.
const DELIVERY_MAX: Duration = Duration::from_secs(40);

/// Creates a module with one test for each check.
#[macro_export]
macro_rules! wake_up_conformance {
    ($name:ident, $open:expr) => {
        $crate::wake_up_conformance!($name, $open;
            wake_up_returns_until_it_is_removed,
            held_wake_up_is_with_one_worker,
            waiting_calls_get_one_wake_up_each,
            wake_up_of_a_dropped_call_is_not_lost,
            wake_up_that_is_not_held_returns,
        );
    };
    ($name:ident, $open:expr; $($check:ident,)+) => {
        mod $name {
            use super::*;
            $(
                #[tokio::test]
                async fn $check() {
                    let (queue, _kept) = $open.await;
                    $crate::wake_up_conformance::$check(&*queue).await;
                }
            )+
        }
    };
}

async fn wake(queue: &dyn WakeUpQueue, payload: &str) {
    let woken = queue.wake(payload.as_bytes().to_vec()).await;
    woken.expect("the queue stores a wake-up");
}

async fn next(queue: &dyn WakeUpQueue) -> Box<dyn HeldWakeUp> {
    let next = timeout(DELIVERY_MAX, queue.next_wake_up()).await;
    let next = next.expect("a wake-up arrives");
    next.expect("the queue can be read")
}

async fn is_empty(queue: &dyn WakeUpQueue) -> bool {
    let waiting = queue.waiting_wake_up().await;
    waiting.expect("the queue can be read").is_none()
}

async fn remove(held: &dyn HeldWakeUp) {
    held.remove().await.expect("a held wake-up can be removed");
}

/// A wake-up keeps its bytes, counts its deliveries, and is delivered again after its release until it is removed.
pub async fn wake_up_returns_until_it_is_removed(queue: &dyn WakeUpQueue) {
    assert!(is_empty(queue).await, "a new queue is empty");
    wake(queue, "a").await;
    for delivery in 1..=3 {
        let held = next(queue).await;
        assert_eq!((held.payload(), held.deliveries()), (&b"a"[..], delivery));
        let released = held.release_after(Duration::ZERO).await;
        released.expect("a held wake-up can be released");
    }
    remove(&*next(queue).await).await;
    assert!(is_empty(queue).await, "the wake-up was removed");
}

/// As long as a worker holds a wake-up, no other worker gets it, also after the end of one delivery.
pub async fn held_wake_up_is_with_one_worker(queue: &dyn WakeUpQueue) {
    wake(queue, "a").await;
    let held = next(queue).await;
    for _ in 0..4 {
        assert!(is_empty(queue).await, "another worker gets the wake-up");
        tokio::time::sleep(held.hold_every()).await;
        held.hold().await.expect("a held wake-up can be kept");
    }
    assert!(is_empty(queue).await, "another worker gets the wake-up");
    remove(&*held).await;
}

/// Several calls wait, and each gets one of the wake-ups that are stored meanwhile.
pub async fn waiting_calls_get_one_wake_up_each(queue: &dyn WakeUpQueue) {
    const CALLS: usize = 4;
    let payloads: Vec<String> = (0..CALLS).map(|number| number.to_string()).collect();
    let mut waiting: Vec<_> = (0..CALLS).map(|_| Box::pin(next(queue))).collect();
    for call in &mut waiting {
        assert!(poll_immediate(call).await.is_none(), "the queue is empty");
    }
    let sending = join_all(payloads.iter().map(|payload| wake(queue, payload)));
    let (_, held) = tokio::join!(sending, join_all(waiting));
    let delivered: BTreeSet<_> = held.iter().map(|held| held.payload().to_vec()).collect();
    let sent: BTreeSet<_> = payloads.into_iter().map(String::into_bytes).collect();
    assert_eq!(delivered, sent);
    join_all(held.iter().map(|held| remove(&**held))).await;
    assert!(is_empty(queue).await, "all wake-ups were removed");
}

/// A call that waits is dropped. The next wake-up goes to another call.
pub async fn wake_up_of_a_dropped_call_is_not_lost(queue: &dyn WakeUpQueue) {
    let mut dropped = Box::pin(queue.next_wake_up());
    let first = poll_immediate(&mut dropped).await;
    assert!(first.is_none(), "the queue is empty");
    drop(dropped);
    wake(queue, "a").await;
    remove(&*next(queue).await).await;
}

/// A worker takes a wake-up and then neither holds nor removes it, as after a crash.
pub async fn wake_up_that_is_not_held_returns(queue: &dyn WakeUpQueue) {
    wake(queue, "a").await;
    drop(next(queue).await);
    let again = next(queue).await;
    assert_eq!((again.payload(), again.deliveries()), (&b"a"[..], 2));
    remove(&*again).await;
}
