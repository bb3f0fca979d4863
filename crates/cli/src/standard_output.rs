//! Standard output for the messages of a protocol.

use std::io;
use std::os::fd::AsFd as _;

use anyhow::Context as _;
use tokio::fs::File;

use crate::error::CliError;

/// Standard output without the line buffer of the standard library, which would write each message in two parts. Each part
/// would need a thread and a system call.
pub(crate) fn unbuffered_stdout() -> Result<File, CliError> {
    let output = io::stdout().as_fd().try_clone_to_owned();
    let output = output.context("cannot use standard output")?;
    Ok(File::from_std(output.into()))
}
