//! Data of tasks: messages, artifacts, states, events and records. Applying the records in order (a fold) gives the
//! task.

mod artifact;
mod codec;
mod event;
mod lost_execution;
mod message;
mod nesting;
mod record;
mod status;
mod task;
#[cfg(test)]
pub(crate) mod test_tasks;

pub use artifact::{Artifact, ArtifactUpdate};
pub use codec::TaskRecordError;
pub(crate) use codec::{decode, encode};
pub use event::{StatusUpdate, StoppedWork, TaskEvent};
pub use lost_execution::LostExecution;
pub use message::{JsonMap, MessagePart, MessageSender, PartContent, TaskMessage};
pub(crate) use nesting::{NESTING_MAX, is_too_deep};
pub use record::{TaskEnding, TaskRecord};
pub use status::{TaskState, TaskStatus};
pub use task::{IllegalTaskRecord, Task};
