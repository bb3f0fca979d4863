//! Containment on Linux: keepers, and process groups with a marker and sweeps of `/proc`.

mod adopted;
mod environment;
mod group;
mod group_driver;
mod identity;
mod keeper;
mod keeper_client;
mod keeper_launch;
mod keeper_loss;
mod keeper_socket;
mod keepers;
mod marked;
mod owner_deadline;
mod procfs;
mod procfs_reader;
mod readiness;
mod reattach;
mod strays;
mod sweep;
mod tree;

pub(crate) use group::ProcessGroups;
pub use identity::{identity_of, is_alive, signal};
pub use keeper::keeper_main;
pub(crate) use keeper_launch::ReservedKeeper;
pub use keepers::Keepers;
pub use marked::marked_processes;
pub use reattach::{reattach, survivor};
pub use tree::{all_processes, child_processes};
