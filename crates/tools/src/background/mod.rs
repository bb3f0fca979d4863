//! Background work: commands and tasks that continue after the call that started them. Each unit of work has an id and
//! a separate scope in the session.
//!
//! Work is either the processes of a command, which the shell hands over to the session's owner through a
//! [`BackgroundHost`], or a task: a sub-agent that [`start_task`] runs. The handover of processes loses no output: the
//! processes move from the call's scope to the host's scope in one step, and their output is read without a gap.
//!
//! Invariants:
//! 1. The end of work is decided once; all later queries return the same end.
//! 2. If work ends because of a stop, its end is recorded before the receipt of the stop is available.
//! 3. [`BackgroundChanges`] counts every start, end and detachment, with or without subscribers.

mod end;
mod host;
mod process;
mod slice;
mod task;
mod tool;
mod work;

pub use end::BackgroundEnd;
pub use host::{BackgroundChanges, BackgroundHost, BackgroundRegistry, ENDED_WORKS_MAX};
pub(crate) use process::{Handover, hand_over};
pub use slice::OutputSlice;
pub use task::{TaskCx, TaskOutput, TaskSpec, promote_task, start_task};
pub use tool::BackgroundTool;
pub use work::BackgroundWork;
