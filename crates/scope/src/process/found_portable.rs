//! Where there is no `/proc`, a tree of an earlier process cannot be taken up again.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;

use super::driver::ProcessDriver;
use super::found_error::FindError;
use super::handle::ProcessHandle;
use super::identity::is_alive;

/// Takes a tree up again that another process left.
///
/// # Errors
/// Always.
pub fn find_again(
    _main: &ProcessIdentity,
    _keeper: Option<&ProcessIdentity>,
    _marker: Option<&Arc<str>>,
) -> Result<(ProcessHandle, ProcessDriver), FindError> {
    Err(FindError::NotHere)
}

/// A process of a tree that another process left, if it is known to live: its keeper, or else its main process.
pub fn survivor(
    main: &ProcessIdentity,
    keeper: Option<&ProcessIdentity>,
    _marker: Option<&str>,
) -> Option<ProcessIdentity> {
    let mut known = keeper.into_iter().chain([main]);
    known.find(|known| is_alive(known)).cloned()
}
