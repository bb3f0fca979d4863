//! The control runtime of a tree: it runs stops, timers and engines, apart from work that may block its threads.

use std::fmt;

use tokio::runtime::{Builder, Handle, Runtime};

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
    /// Set if the tree has its own thread.
    own: Option<Runtime>,
}

impl RunningControl {
    /// Starts the thread, if the tree has its own. If the system provides no thread, the work runtime is used.
    pub(crate) fn start(runtime: &ControlRuntime, work: &Handle) -> Self {
        if let ControlRuntime::Of(handle) = runtime {
            return Self {
                handle: handle.clone(),
                own: None,
            };
        }
        let built = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("allstop-control")
            .enable_all()
            .build();
        match built {
            Ok(runtime) => Self {
                handle: runtime.handle().clone(),
                own: Some(runtime),
            },
            Err(error) => {
                tracing::warn!(
                    %error,
                    "no thread for stops and deadlines: blocking work delays them; raise the limit of threads"
                );
                Self {
                    handle: work.clone(),
                    own: None,
                }
            }
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for RunningControl {
    fn drop(&mut self) {
        if let Some(runtime) = self.own.take() {
            // The last scope may be dropped on a thread of a runtime, where a wait for the thread is not allowed.
            runtime.shutdown_background();
        }
    }
}
