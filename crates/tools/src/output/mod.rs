//! Bounded output: limits the memory and the disk space for the output of every command, and reports all dropped
//! output.

mod bounded;
mod cut;
mod folder;
mod shared;

pub use bounded::{BoundedOutput, OutputLimits};
pub use cut::{without_cut_end, without_cut_start};
pub use folder::OutputFolder;
pub(crate) use shared::SharedOutput;
