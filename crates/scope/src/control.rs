//! The two runtimes of a tree. The control runtime runs stops, timers and engines, apart from the work, which may block
//! its threads.

use std::convert::Infallible;
use std::{fmt, io, thread};

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::oneshot;

/// Runtime for the stops, timers and engines of a tree, or for its work.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum TreeRuntime {
    /// A runtime with one thread that belongs to the tree. The thread ends after the last scope of the tree was
    /// dropped. Work that blocks the threads of other runtimes does not delay this runtime.
    #[default]
    OwnThread,
    /// A runtime of the caller. If work blocks all threads of this runtime, everything else on it waits for this work.
    Of(Handle),
}

impl TreeRuntime {
    /// The current runtime if it has at least two threads for tasks; otherwise a thread of the tree. So work that blocks
    /// its thread never blocks the task that called this function.
    pub fn beside_caller() -> Self {
        match Handle::try_current() {
            Ok(current)
                if current.runtime_flavor() == RuntimeFlavor::MultiThread
                    && current.metrics().num_workers() > 1 =>
            {
                Self::Of(current)
            }
            Ok(_) | Err(_) => Self::OwnThread,
        }
    }
}

impl From<Handle> for TreeRuntime {
    fn from(handle: Handle) -> Self {
        Self::Of(handle)
    }
}

impl fmt::Debug for TreeRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnThread => "OwnThread",
            Self::Of(_) => "Of",
        })
    }
}

/// The runtimes of one tree while the tree exists.
pub(crate) struct RunningRuntimes {
    control: Handle,
    work: Handle,
    /// The tree's own threads: each ends when its sender is dropped. The drop does not wait for the threads, because the
    /// last scope may be dropped on a thread of a runtime, where a wait is not allowed.
    _threads: Vec<oneshot::Sender<Infallible>>,
}

impl RunningRuntimes {
    /// Starts the tree's own threads. If the system provides only one of two threads, one runtime does the work of both.
    ///
    /// # Errors
    /// If both runtimes need a thread, and the system provides none.
    pub(crate) fn start(control: &TreeRuntime, work: &TreeRuntime) -> io::Result<Self> {
        let mut threads = Vec::new();
        let mut start = |runtime: &TreeRuntime, name| match runtime {
            TreeRuntime::Of(handle) => Ok(handle.clone()),
            TreeRuntime::OwnThread => start_thread(name).map(|(handle, thread)| {
                threads.push(thread);
                handle
            }),
        };
        let (control, work) = (
            start(control, "allstop-control"),
            start(work, "allstop-pool"),
        );
        let (control, work) = match (control, work) {
            (Ok(control), Ok(work)) => (control, work),
            (Ok(only), Err(error)) | (Err(error), Ok(only)) => {
                tracing::warn!(
                    %error,
                    "no thread for stops and deadlines: blocking work delays them; raise the limit of threads"
                );
                (only.clone(), only)
            }
            (Err(error), Err(_)) => return Err(error),
        };
        Ok(Self {
            control,
            work,
            _threads: threads,
        })
    }

    /// Runtime for stops, timers and engines.
    pub(crate) fn control(&self) -> &Handle {
        &self.control
    }

    /// Runtime of the work.
    pub(crate) fn work(&self) -> &Handle {
        &self.work
    }
}

/// Starts a thread with a runtime. A runtime that starts its own threads would panic if the system provides none.
#[expect(
    clippy::disallowed_methods,
    reason = "the scopes of the tree run on this thread"
)]
fn start_thread(name: &str) -> io::Result<(Handle, oneshot::Sender<Infallible>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (thread, dropped) = oneshot::channel();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _it_is_dropped = runtime.block_on(dropped);
            // Blocking work of the runtime must not hold up the end of the thread.
            runtime.shutdown_background();
        })?;
    Ok((handle, thread))
}
