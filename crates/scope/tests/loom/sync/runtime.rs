//! Tasks are threads of the model. The scheduler chooses how fast time passes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::sync::Notify;
use tokio::time::Instant;

/// Polls a future on this thread until it is ready. loom's own `block_on` uses additional steps to count wakers, and
/// loom would try all interleavings of these steps too.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Parked(Notify);
    impl Wake for Parked {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }
    let parked = Arc::new(Parked(Notify::new()));
    let waker = Waker::from(Arc::clone(&parked));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        parked.0.wait();
    }
}

#[derive(Clone)]
pub struct Handle;

impl Handle {
    pub(crate) fn current() -> Self {
        Self
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> JoinHandle {
        JoinHandle(loom::thread::spawn(move || block_on(task)))
    }
}

pub(crate) struct JoinHandle(loom::thread::JoinHandle<()>);

impl JoinHandle {
    /// Used for the timers of deadlines. No model has a deadline.
    pub(crate) fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(|| {})
    }
}

/// Drops the future of a task at once. tokio's `AbortHandle` may also do that.
#[derive(Clone)]
pub(crate) struct AbortHandle(Arc<dyn Fn() + Send + Sync>);

impl AbortHandle {
    pub(crate) fn new(abort: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(abort))
    }

    pub(crate) fn abort(&self) {
        (self.0)();
    }
}

/// Returns at once or never. In the models, the grace is either zero or longer than the model runs.
pub(crate) async fn sleep_until(at: Instant) {
    if at > Instant::now() {
        std::future::pending::<()>().await;
    }
}

/// Returns at once.
pub(crate) async fn sleep(_: Duration) {}

/// A runtime of a model: a handle that makes threads of the model.
#[derive(Clone)]
pub enum TreeRuntime {
    OwnThread,
    Of(Handle),
}

impl TreeRuntime {
    pub(crate) fn beside_caller() -> Self {
        Self::OwnThread
    }
}

impl From<Handle> for TreeRuntime {
    fn from(handle: Handle) -> Self {
        Self::Of(handle)
    }
}

pub(crate) struct RunningRuntimes(Handle);

impl RunningRuntimes {
    #[expect(
        clippy::unnecessary_wraps,
        reason = "the system may lack a thread for a real runtime"
    )]
    pub(crate) fn start(_control: &TreeRuntime, _work: &TreeRuntime) -> std::io::Result<Self> {
        Ok(Self(Handle))
    }

    pub(crate) fn control(&self) -> &Handle {
        &self.0
    }

    pub(crate) fn work(&self) -> &Handle {
        &self.0
    }
}
