//! Starting a command as the leader of a new process group.

use std::fs;
use std::io::{self, PipeWriter};
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::launch_error::LaunchError;
use crate::spec::{MARKER_VARIABLE, ProcessSpec};

/// Starts the command. Closes the copies of the output pipe that this process holds.
pub(crate) fn spawn_group(spec: &ProcessSpec, output: PipeWriter) -> Result<Child, LaunchError> {
    let second = output
        .try_clone()
        .map_err(LaunchError::setup("output pipe"))?;
    let mut command = Command::new(&spec.program);
    for hidden in &spec.env_hidden {
        command.env_remove(hidden);
    }
    command
        .args(&spec.args)
        .current_dir(&spec.cwd)
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .env(MARKER_VARIABLE, &*spec.marker)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(second)
        .process_group(0);
    command.spawn().map_err(|source| {
        directory_error(spec).unwrap_or_else(|| LaunchError::Program {
            program: spec.program.clone(),
            source,
        })
    })
}

/// Returns an error about the working directory if the directory is the reason for the failure. The system reports a
/// missing program with the same error number.
fn directory_error(spec: &ProcessSpec) -> Option<LaunchError> {
    let failed = |source| LaunchError::Directory {
        cwd: spec.cwd.clone(),
        source,
    };
    match fs::metadata(&spec.cwd) {
        Err(source) => Some(failed(source)),
        Ok(found) if !found.is_dir() => Some(failed(io::ErrorKind::NotADirectory.into())),
        Ok(_) => None,
    }
}
