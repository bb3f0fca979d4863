//! One page of a list of tasks, which has a limited size.

use allstop_task::{TaskPosition, TaskSummary};
use serde::Serialize;

/// Maximum size of a page in bytes, as JSON. gRPC clients accept 4 MiB by default.
const PAGE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Maximum number of pages that are collected at the same time. A page needs several times its size in memory, and many
/// clients may ask at once.
pub(crate) const PAGES_AT_ONCE: usize = 4;

/// A page that is being collected.
#[derive(Default)]
pub(crate) struct PageOfTasks {
    tasks: Vec<a2a::Task>,
    bytes: usize,
    last: Option<TaskPosition>,
}

impl PageOfTasks {
    /// Adds a task. False if the page is full; the task then belongs to the next page. The first task always fits.
    pub(crate) fn push(&mut self, summary: &TaskSummary, task: a2a::Task) -> bool {
        self.bytes += json_bytes(&task);
        if !self.tasks.is_empty() && self.bytes > PAGE_BYTES_MAX {
            return false;
        }
        self.tasks.push(task);
        self.last = Some((summary.updated_at, summary.id.clone()));
        true
    }

    /// The tasks, and the position after the last of them.
    pub(crate) fn finish(self) -> (Vec<a2a::Task>, Option<TaskPosition>) {
        (self.tasks, self.last)
    }
}

/// Size of a value as JSON, in bytes.
fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value without a JSON form does not reach the client either.
    drop(serde_json::to_writer(&mut count, value));
    count.0
}
