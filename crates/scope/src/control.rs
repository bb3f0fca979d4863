//! The control runtime of a tree: it runs stops, timers and engines, apart from work that may block its threads.

use std::convert::Infallible;
use std::{fmt, io, thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Runtime for stops, timers and engines.
#[derive(Clone, Default)]
pub enum ControlRuntime {
    /// A runtime with one thread that belongs to the tree. The thread ends after the last scope of the tree was
    /// dropped. Work that blocks its threads delays no stop and no deadline.
    #[default]
    OwnThread,
    /// A runtime of the caller. If work blocks all threads of this runtime, stops and deadlines wait for this work.
    Of(Handle),
}

impl From<Handle> for ControlRuntime {
    fn from(handle: Handle) -> Self {
        Self::Of(handle)
    }
}

impl fmt::Debug for ControlRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnThread => "OwnThread",
            Self::Of(_) => "Of",
        })
    }
}

/// The control runtime of one tree while the tree exists.
pub(crate) struct RunningControl {
    handle: Handle,
    /// If the tree has its own thread: the thread ends when this sender is dropped. Nobody waits for the thread, because
    /// the last scope may be dropped on a thread of a runtime, where a wait is not allowed.
    _thread: Option<oneshot::Sender<Infallible>>,
}

impl RunningControl {
    /// Starts the thread, if the tree has its own. If the system provides no thread, the work runtime is used.
    pub(crate) fn start(runtime: &ControlRuntime, work: &Handle) -> Self {
        let started = match runtime {
            ControlRuntime::Of(handle) => Ok((handle.clone(), None)),
            ControlRuntime::OwnThread => {
                start_thread().map(|(handle, thread)| (handle, Some(thread)))
            }
        };
        let (handle, thread) = started.unwrap_or_else(|error| {
            tracing::warn!(
                %error,
                "no thread for stops and deadlines: blocking work delays them; raise the limit of threads"
            );
            (work.clone(), None)
        });
        Self {
            handle,
            _thread: thread,
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// Starts a thread with a runtime. A runtime that starts its own threads would panic if the system provides none.
#[expect(
    clippy::disallowed_methods,
    reason = "the scopes of the tree run on this thread"
)]
fn start_thread() -> io::Result<(Handle, oneshot::Sender<Infallible>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (thread, dropped) = oneshot::channel();
    thread::Builder::new()
        .name("allstop-control".to_owned())
        .spawn(move || {
            let _it_is_dropped = runtime.block_on(dropped);
            // Blocking work of the runtime must not hold up the end of the thread.
            runtime.shutdown_background();
        })?;
    Ok((handle, thread))
}
