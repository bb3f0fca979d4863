//! Where there is no `/proc`, a tree of an earlier process cannot be taken up again.

use allstop_core::process::ProcessIdentity;

use super::driver::ProcessDriver;
use super::found_error::FindError;
use super::handle::ProcessHandle;

/// Takes a tree up again that another process left.
///
/// # Errors
/// Always.
pub fn find_again(
    _main: &ProcessIdentity,
    _keeper: Option<&ProcessIdentity>,
) -> Result<(ProcessHandle, ProcessDriver), FindError> {
    Err(FindError::NotHere)
}
