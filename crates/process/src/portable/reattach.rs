//! Process trees that earlier processes have launched. Without `/proc`, no process can attach to such trees.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;

use crate::driver::ProcessDriver;
use crate::handle::ProcessHandle;
use crate::reattach_error::ReattachError;

use super::identity::is_alive;

/// Attaches to a tree that another process left running.
///
/// # Errors
/// Always.
pub fn reattach(
    _main: &ProcessIdentity,
    _keeper: Option<&ProcessIdentity>,
    _marker: Option<&Arc<str>>,
) -> Result<(ProcessHandle, ProcessDriver), ReattachError> {
    Err(ReattachError::NotHere)
}

/// A living process of a tree that another process left running: its keeper, otherwise its main process.
pub fn survivor(
    main: &ProcessIdentity,
    keeper: Option<&ProcessIdentity>,
    _marker: Option<&str>,
) -> Option<ProcessIdentity> {
    let mut known = keeper.into_iter().chain([main]);
    known.find(|known| is_alive(known)).cloned()
}
