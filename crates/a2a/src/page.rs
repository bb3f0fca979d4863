//! One page of a list of tasks, which has a limited size.

use allstop_task::{TaskPosition, TaskSummary};

use crate::response_memory::json_bytes;

/// Maximum size of a page in bytes, as JSON. gRPC clients accept 4 MiB by default.
const PAGE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A page that is being collected.
#[derive(Default)]
pub(crate) struct PageOfTasks {
    tasks: Vec<a2a::Task>,
    /// Size of the tasks, in bytes.
    bytes: usize,
    last: Option<TaskPosition>,
}

impl PageOfTasks {
    /// Adds a task. False if the page is full; the task then belongs to the next page. The first task always fits.
    pub(crate) fn push(&mut self, summary: &TaskSummary, task: a2a::Task) -> bool {
        let bytes = self.bytes + json_bytes(&task);
        if !self.tasks.is_empty() && bytes > PAGE_BYTES_MAX {
            return false;
        }
        self.bytes = bytes;
        self.tasks.push(task);
        self.last = Some((summary.updated_at, summary.id.clone()));
        true
    }

    /// Size of the tasks, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The tasks, and the position after the last of them.
    pub(crate) fn finish(self) -> (Vec<a2a::Task>, Option<TaskPosition>) {
        (self.tasks, self.last)
    }
}
