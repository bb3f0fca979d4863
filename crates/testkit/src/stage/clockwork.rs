//! A deterministic runtime with one thread and a paused clock. The runtime polls the main future between any two polls
//! of tasks.
//!
//! The scheduler checks for external events after every poll of a task, and each time it finds that the main future was
//! woken. If the main future were always woken, the thread would never sleep, and the paused clock would never advance.
//! Therefore the main future wakes a sentinel: a task that does no work. If the sentinel is the next task to run, no
//! other task was waiting. In this case, nothing wakes the main future until the thread has slept.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::task::AtomicWaker;
use tokio::runtime::{Builder, Handle, Runtime};

/// Number of tasks that live as long as the runtime: only the sentinel.
pub(crate) const OWN_TASKS: usize = 1;

/// Shows the main future whether a task was polled or time has passed since the previous poll of the main future.
#[derive(Clone, Default)]
pub(crate) struct Tick(Arc<AtomicBool>);

impl Tick {
    /// True if a task was polled or time has passed since the previous poll of the main future.
    pub(crate) fn is_one(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Sentinel {
    waker: AtomicWaker,
    ran: AtomicBool,
}

/// Runs a future to its end, and polls it after each poll of any task.
///
/// # Panics
/// Panics if the system provides no runtime.
pub(crate) fn run<T, F: Future<Output = T>>(make: impl FnOnce(Tick) -> F) -> T {
    let asleep = Arc::new(AtomicWaker::new());
    let (tick, sentinel) = (Tick::default(), Arc::new(Sentinel::default()));
    // The sentinel is already queued for its first poll, as every new task is.
    let (mut queued, mut queued_just_now) = (true, false);
    runtime(&asleep).block_on(async {
        stand_guard(Arc::clone(&sentinel));
        let mut main = pin!(make(tick.clone()));
        std::future::poll_fn(|cx| {
            let only_the_sentinel = sentinel.ran.swap(false, Ordering::Relaxed);
            let nothing_to_do = only_the_sentinel && queued_just_now;
            queued &= !only_the_sentinel;
            tick.0.store(!only_the_sentinel, Ordering::Relaxed);
            let polled = main.as_mut().poll(cx);
            asleep.register(cx.waker());
            queued_just_now = false;
            if polled.is_pending() && !nothing_to_do {
                queued_just_now = !std::mem::replace(&mut queued, true);
                if queued_just_now {
                    sentinel.waker.wake();
                }
                cx.waker().wake_by_ref();
            }
            polled
        })
        .await
    })
}

/// Starts the sentinel.
fn stand_guard(sentinel: Arc<Sentinel>) {
    let guard = std::future::poll_fn(move |cx| {
        sentinel.waker.register(cx.waker());
        sentinel.ran.store(true, Ordering::Relaxed);
        Poll::<()>::Pending
    });
    #[expect(
        clippy::disallowed_methods,
        reason = "it stands beside every scope, and ends with the runtime"
    )]
    drop(Handle::current().spawn(guard));
}

fn runtime(asleep: &Arc<AtomicWaker>) -> Runtime {
    let asleep = Arc::clone(asleep);
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .event_interval(1)
        .on_thread_unpark(move || asleep.wake())
        .build()
        .expect("a thread and a timer are all it needs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::pin::Pin;
    use std::time::Duration;
    use tokio::runtime::Handle;
    use tokio::time::{Instant, sleep};

    #[test]
    fn time_moves_on_only_when_nothing_is_left_to_do() {
        run(|_| async {
            let began = Instant::now();
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(began.elapsed(), Duration::ZERO);
            sleep(Duration::from_hours(1)).await;
            assert_eq!(began.elapsed(), Duration::from_hours(1));
        });
    }

    #[test]
    fn main_is_polled_after_each_poll_of_a_task() {
        let seen = Arc::new(Mutex::new(String::new()));
        let task = |name| {
            let seen = Arc::clone(&seen);
            async move {
                seen.lock().push(name);
                tokio::task::yield_now().await;
                seen.lock().push(name);
                sleep(Duration::from_millis(1)).await;
                seen.lock().push(name);
            }
        };
        let seen = &seen;
        run(|tick| async move {
            #[expect(clippy::disallowed_methods, reason = "this tests what scopes run on")]
            let tasks = ['a', 'b'].map(|name| Handle::current().spawn(task(name)));
            let mut tasks = futures::future::join_all(tasks);
            std::future::poll_fn(|cx| {
                if tick.is_one() {
                    seen.lock().push('.');
                }
                Pin::new(&mut tasks).poll(cx)
            })
            .await
        });
        let seen = seen.lock();
        for pair in ["aa", "ab", "ba", "bb"] {
            assert!(!seen.contains(pair), "{seen}");
        }
        assert_eq!(seen.matches('a').count(), 3);
    }
}
