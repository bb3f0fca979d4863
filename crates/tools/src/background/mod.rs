//! Background work: commands and tasks that continue after the call that started them. Each unit of work has an id and
//! a separate scope in the session.
//!
//! Work is of two kinds. The processes of a command are handed over to the session by the tool `shell`, through a
//! [`BackgroundHost`]. A task is a future, usually a sub-agent, that [`start_task`] runs. The handover of processes
//! loses no output: the processes move from the call's scope to the host's scope in one step, and their output is read
//! without a gap.
//!
//! Invariants:
//! 1. The end of work is decided once; all later queries return the same end.
//! 2. If work ends because of a stop, its end is recorded before the receipt of the stop is available.
//! 3. [`BackgroundChanges`] counts every start, every end and every detachment (after which the work may outlive this
//!    process), with or without subscribers.

mod end;
mod future_work;
mod host;
mod process;
mod slice;
mod task;
mod tool;
mod work;

pub use end::BackgroundEnd;
pub(crate) use future_work::CallMeter;
pub use host::{BackgroundChanges, BackgroundHost, BackgroundRegistry, ENDED_WORKS_MAX};
#[cfg(feature = "shell")]
pub(crate) use process::{Handover, hand_over};
pub use slice::OutputSlice;
pub use task::{AnswerIfLost, TaskCx, TaskOutput, TaskSpec, promote_task, start_task};
pub use tool::BackgroundTool;
pub use work::BackgroundWork;
