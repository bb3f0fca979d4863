//! Spawns futures and threads in a scope. At the end of a stop, force drops a future, but cannot end a thread. No other
//! module of the workspace spawns tasks or threads.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use allstop_core::Cause;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::barrier::NotStarted;
use crate::group::WorkKey;
use crate::registration::Registration;
use crate::scope::Scope;
use crate::work::{Ending, Force, WorkSpec};

/// Reason why spawned work has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorkLost {
    /// The future was dropped because a stop forced it to end, or because its runtime ended.
    #[error("the work was dropped")]
    Dropped,
    /// The work panicked.
    #[error("the work panicked")]
    Panicked,
    /// The work never began, because the system provided no thread.
    #[error(
        "the system gives no more threads; end other programs, or raise the limit (`ulimit -u`)"
    )]
    NoThread,
}

impl WorkLost {
    fn of(error: &tokio::task::JoinError) -> Self {
        if error.is_panic() {
            Self::Panicked
        } else {
            Self::Dropped
        }
    }
}

/// Spawned work. Dropping the handle changes nothing: the scope owns the work.
#[derive(Debug)]
pub struct WorkHandle<T> {
    inner: HandleKind<T>,
}

#[derive(Debug)]
enum HandleKind<T> {
    /// Returns `None` if the work never began.
    Tracked(tokio::task::JoinHandle<Option<T>>),
    Plain(tokio::task::JoinHandle<T>),
    Thread(oneshot::Receiver<std::thread::Result<T>>),
    /// Work that never began, because the system provided no thread.
    NoThread,
}

impl<T> Future for WorkHandle<T> {
    type Output = Result<T, WorkLost>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().inner {
            HandleKind::Tracked(task) => Pin::new(task).poll(cx).map(|joined| {
                let value = joined.map_err(|error| WorkLost::of(&error))?;
                value.ok_or(WorkLost::Dropped)
            }),
            HandleKind::Plain(task) => Pin::new(task)
                .poll(cx)
                .map(|joined| joined.map_err(|error| WorkLost::of(&error))),
            HandleKind::Thread(result) => Pin::new(result).poll(cx).map(|sent| match sent {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(_)) => Err(WorkLost::Panicked),
                Err(_) => Err(WorkLost::Dropped),
            }),
            HandleKind::NoThread => Poll::Ready(Err(WorkLost::NoThread)),
        }
    }
}

/// Context of spawned work: access to its scope.
#[derive(Debug, Clone)]
pub struct WorkCx {
    scope: Scope,
    key: WorkKey,
}

impl WorkCx {
    /// The scope in which the work runs.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Resolves when a stop covers the work, and then acknowledges the stop at this checkpoint. After that, the work
    /// still has to return.
    ///
    /// # Cancel safety
    /// Cancel safe: a future that is dropped before it resolves acknowledges nothing.
    pub async fn stopped_at(&self, checkpoint: &'static str) -> Cause {
        self.scope.stopped().await;
        self.hear(checkpoint)
    }

    /// If a stop covers the work, acknowledges the stop at this checkpoint. Use this function in loops and threads.
    ///
    /// # Errors
    /// Returns the cause of the stop. The work must then return.
    pub fn checkpoint(&self, checkpoint: &'static str) -> Result<(), Cause> {
        if !self.scope.is_stopped() {
            return Ok(());
        }
        Err(self.hear(checkpoint))
    }

    fn hear(&self, checkpoint: &'static str) -> Cause {
        self.scope
            .node()
            .acknowledge(self.key, checkpoint.into())
            .expect("a cause is set before the signal is given")
    }

    /// Records that the work observed the stop.
    pub fn acknowledge(&self, checkpoint: impl Into<Cow<'static, str>>) {
        let _cause = self.scope.node().acknowledge(self.key, checkpoint.into());
    }

    /// Checkpoint at which the work observed the stop, as listed in the receipt. `None` if the work has not observed a
    /// stop.
    pub fn acknowledged(&self) -> Option<Cow<'static, str>> {
        self.scope.node().acknowledged(self.key)
    }
}

/// A future of any type. The runtime's code for a task is compiled for each type of future, and takes more time to compile than
/// most futures. It also moves a whole task when the task is created, when it ends, and when its output is taken.
type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future with its registration. The future is the first field, so it is dropped first.
struct Tracked<T> {
    future: Option<BoxedFuture<T>>,
    registration: Option<Registration>,
    begun: bool,
}

impl<T> Future for Tracked<T> {
    /// `None` if a stop was accepted between the registration and the first poll. In this case, the work was registered
    /// before the stop but has not begun. No work begins after the barrier is closed.
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.get_mut();
        let overtaken = !std::mem::replace(&mut this.begun, true)
            && this
                .registration
                .as_ref()
                .is_some_and(|work| work.node().cause().is_some());
        let output = match &mut this.future {
            Some(future) if !overtaken => Some(std::task::ready!(future.as_mut().poll(cx))),
            _ => None,
        };
        // Also drops a future that has returned. Its destructors may take time, and the work ends only after them.
        this.future = None;
        if let Some(registration) = this.registration.take() {
            registration.finish(if overtaken {
                Ending::NotBegun
            } else {
                Ending::Returned
            });
        }
        Poll::Ready(output)
    }
}

impl Scope {
    /// Spawns a future on the tree's work runtime. If a stop is accepted before the first poll, the future is dropped,
    /// and its item reports `not_begun`.
    ///
    /// # Errors
    /// If a stop covers this scope, or the scope is closed. Then `make` is not called.
    pub fn spawn<F>(
        &self,
        spec: WorkSpec,
        make: impl FnOnce(WorkCx) -> F,
    ) -> Result<WorkHandle<F::Output>, NotStarted>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.spawn_on(self.env().work(), spec, false, make)
    }

    /// Like [`Scope::spawn`], but for work that has begun in another place and continues here. If a stop is accepted
    /// before the first poll here, the future is still polled, and must observe the stop.
    ///
    /// # Errors
    /// If a stop covers this scope, or the scope is closed. Then `make` is not called.
    pub fn spawn_begun<F>(
        &self,
        spec: WorkSpec,
        make: impl FnOnce(WorkCx) -> F,
    ) -> Result<WorkHandle<F::Output>, NotStarted>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.spawn_on(self.env().work(), spec, true, make)
    }

    /// Like [`Scope::spawn`], but the future receives its registration, so that it can record an ending with evidence
    /// and details. If the future is dropped before that, the ending is recorded as dropped. The future is always
    /// polled: if a stop was accepted before the first poll, the future must observe the stop.
    ///
    /// # Errors
    /// If a stop covers this scope, or the scope is closed. Then `make` is not called.
    pub fn spawn_reporting<F>(
        &self,
        spec: WorkSpec,
        make: impl FnOnce(Registration) -> F,
    ) -> Result<WorkHandle<F::Output>, NotStarted>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let registration = self.node().register(spec, Force::AbortSoon)?;
        let (key, node) = (registration.key(), registration.node().clone());
        let future: BoxedFuture<F::Output> = Box::pin(make(registration));
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that spawns: registered above"
        )]
        let task = self.env().work().spawn(future);
        node.set_force(key, Force::Abort(task.abort_handle()));
        Ok(WorkHandle {
            inner: HandleKind::Plain(task),
        })
    }

    fn spawn_on<F>(
        &self,
        runtime: &Handle,
        spec: WorkSpec,
        begun: bool,
        make: impl FnOnce(WorkCx) -> F,
    ) -> Result<WorkHandle<F::Output>, NotStarted>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let registration = self.node().register(spec, Force::AbortSoon)?;
        let key = registration.key();
        let node = registration.node().clone();
        let future = make(WorkCx {
            scope: self.clone(),
            key,
        });
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that spawns: registered above"
        )]
        let task = runtime.spawn(Tracked {
            future: Some(Box::pin(future)),
            registration: Some(registration),
            begun,
        });
        node.set_force(key, Force::Abort(task.abort_handle()));
        Ok(WorkHandle {
            inner: HandleKind::Tracked(task),
        })
    }

    /// Spawns an engine. An engine drives a scope and acknowledges the stops of this scope, so a stop does not count
    /// the engine as work of the scope. The engine runs on the control runtime and is never forced. It must end soon
    /// after the work that it drives has ended. An engine starts even if the barrier is closed, because a turn that is
    /// refused also needs an ending.
    ///
    /// Use this function together with [`Scope::attach_engine`], so that stops wait for the engine's acknowledgement.
    pub fn spawn_engine<F>(&self, engine: F) -> WorkHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let engine: BoxedFuture<F::Output> = Box::pin(engine);
        #[expect(clippy::disallowed_methods, reason = "the one place that spawns")]
        let task = self.env().control().spawn(engine);
        WorkHandle {
            inner: HandleKind::Plain(task),
        }
    }

    /// Spawns a future on the tree's control runtime. Use this function for drivers that never block their thread.
    ///
    /// # Errors
    /// If a stop covers this scope, or the scope is closed. Then `make` is not called.
    pub fn spawn_control<F>(
        &self,
        spec: WorkSpec,
        make: impl FnOnce(WorkCx) -> F,
    ) -> Result<WorkHandle<F::Output>, NotStarted>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.spawn_on(self.env().control(), spec, false, make)
    }

    /// Runs a closure on a new thread. A thread cannot be forced. If a thread never checks its [`WorkCx`], the receipt
    /// lists the thread as still running. The process does not wait for the thread at exit. If the system provides no
    /// thread, `run` is not called, and the handle returns [`WorkLost::NoThread`].
    ///
    /// # Errors
    /// If a stop covers this scope, or the scope is closed. Then `run` is not called.
    pub fn spawn_blocking<T: Send + 'static>(
        &self,
        spec: WorkSpec,
        run: impl FnOnce(WorkCx) -> T + Send + 'static,
    ) -> Result<WorkHandle<T>, NotStarted> {
        let registration = self.node().register(spec, Force::Thread)?;
        let cx = WorkCx {
            scope: self.clone(),
            key: registration.key(),
        };
        let env = Arc::clone(self.env());
        let threads = Arc::clone(&env);
        let (tx, rx) = oneshot::channel();
        env.thread_started();
        let body = move || {
            if registration.node().cause().is_some() {
                // A stop was accepted while the system created the thread.
                drop(run);
                registration.finish(Ending::NotBegun);
                env.thread_ended();
                return;
            }
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(cx)));
            registration.finish(if result.is_ok() {
                Ending::Returned
            } else {
                Ending::Panicked
            });
            env.thread_ended();
            // Sending fails if the handle was dropped. The registration records the ending anyway.
            drop(tx.send(result));
        };
        let thread = std::thread::Builder::new().name("allstop-work".to_owned());
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that spawns: registered above"
        )]
        let spawned = thread.spawn(body);
        if let Err(error) = spawned {
            // The registration and the sender were dropped with the closure.
            tracing::warn!(%error, "the system gives no thread");
            threads.thread_ended();
            return Ok(WorkHandle {
                inner: HandleKind::NoThread,
            });
        }
        Ok(WorkHandle {
            inner: HandleKind::Thread(rx),
        })
    }
}
