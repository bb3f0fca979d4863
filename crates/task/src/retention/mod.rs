//! Retention: removes ended tasks that are too old or too many, from the store and from memory.
//!
//! Invariants:
//! 1. Only an ended task is removed. A task stays while a client reads it, while an execution of it exists, or while
//!    work of it still runs.
//! 2. The store deletes a task only at the version that was checked. A task that another process has changed stays.
//! 3. The data of a context is deleted before its last task. Until then, no other owner can use the context.

mod limits;

use std::fmt;
use std::sync::Arc;

use allstop_core::{ContextId, TaskId};
use allstop_log::{StreamName, Version};
use futures::FutureExt as _;
use futures::future::BoxFuture;

pub(crate) use limits::ExpiryScan;
pub use limits::RetentionLimits;

use crate::executor::ExecutorError;

/// Limits of the ended tasks that stay, and the parts of the program that keep data about these tasks.
#[derive(Clone)]
pub struct TaskRetention {
    /// Limits of the ended tasks that stay.
    pub limits: RetentionLimits,
    /// Data of contexts, such as conversations.
    pub contexts: Arc<dyn ContextData>,
    /// Data about tasks in other streams of the store.
    pub attachments: Vec<Arc<dyn TaskAttachment>>,
}

/// Data that an executor keeps for a context, in addition to the tasks of the context.
pub trait ContextData: Send + Sync {
    /// Deletes the data of a context. Called before the last task of the context is removed. A call may be repeated, and
    /// a new task of the context may begin at the same time.
    ///
    /// # Errors
    /// If the data is in use or cannot be deleted. The last task of the context then stays, and a later pass repeats the
    /// call.
    fn forget(&self, context: ContextId) -> BoxFuture<'static, Result<(), ExecutorError>>;
}

/// Contexts of an executor that keeps no data for them.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoContextData;

impl ContextData for NoContextData {
    fn forget(&self, _context: ContextId) -> BoxFuture<'static, Result<(), ExecutorError>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// Data about tasks in other streams of the store, such as addresses for notifications. The methods must not block.
pub trait TaskAttachment: Send + Sync {
    /// Streams with data about an ended task, each with its version. They are deleted together with the task. `None` if
    /// the data is still needed, so that the task must stay.
    fn streams(&self, task: &TaskId) -> Option<Vec<(StreamName, Version)>>;

    /// Called after the task and its streams were deleted.
    fn deleted(&self, task: &TaskId);
}

/// Result of one pass over the ended tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovalReport {
    /// Number of removed tasks.
    pub removed: usize,
    /// Number of tasks beyond the limits that had to stay: they are in use, or their data is.
    pub in_use: usize,
}

impl TaskRetention {
    /// Streams of all attachments of a task. `None` if the task must stay.
    pub(crate) fn attached(&self, task: &TaskId) -> Option<Vec<(StreamName, Version)>> {
        let mut streams = Vec::new();
        for attachment in &self.attachments {
            streams.extend(attachment.streams(task)?);
        }
        Some(streams)
    }

    pub(crate) fn note_deleted(&self, task: &TaskId) {
        for attachment in &self.attachments {
            attachment.deleted(task);
        }
    }
}

impl fmt::Debug for TaskRetention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRetention")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
