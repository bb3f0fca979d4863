//! Containment on systems without `/proc` and subreapers: process groups alone.

use std::process::ExitCode;

mod group;
mod identity;
mod keepers;
mod reattach;

pub(crate) use group::PortableGroups as ProcessGroups;
pub use identity::{
    all_processes, child_processes, identity_of, is_alive, marked_processes, signal,
};
pub use keepers::PortableKeepers as Keepers;
pub use reattach::{reattach, survivor};

/// Fails at once, because a keeper requires Linux.
pub fn keeper_main() -> ExitCode {
    ExitCode::FAILURE
}
