//! Bounded output: whatever a command prints, memory and disk are bounded, and nothing is lost without being said.

mod bounded;
mod cut;
mod folder;
mod shared;

pub use bounded::{BoundedOutput, OutputLimits};
pub(crate) use cut::without_cut_end;
pub use folder::OutputFolder;
pub(crate) use shared::SharedOutput;
