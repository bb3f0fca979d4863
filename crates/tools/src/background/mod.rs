//! Background work: what outlives the call that started it, each in a scope of the session and by name.
//!
//! It is either the processes of a command, which the shell hands over to the session's owner through a
//! [`BackgroundHost`], or a task: a sub-agent that [`start_task`] runs. Nothing is let go on the way: processes move
//! from the call's scope to the host's in one step, and something drains their output all along.
//!
//! Invariants:
//! 1. How work ended is decided once; whoever asks later gets the same answer.
//! 2. What ended under a stop is known to have ended when the receipt of the stop is there.
//! 3. Every start, end and letting go is told by [`BackgroundChanges`], whether or not anybody asks.

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
pub(crate) use tool::NAME;
pub use work::BackgroundWork;
