//! Bounded output: limits the memory and the disk space for the output of every command, and reports all dropped
//! output.

mod bounded;
mod budget;
mod cut;
mod disk_limit;
mod file_identity;
mod folder;
mod removed;
mod shared;

pub use bounded::{BoundedOutput, OutputLimits};
pub use budget::{OutputBudget, OutputBudgetLimits};
pub use cut::{without_cut_end, without_cut_start};
pub use folder::OutputFolder;
pub use removed::removed_output;
pub(crate) use shared::{OutputWriter, SharedOutput};
