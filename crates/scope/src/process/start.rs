//! Launching: one pipe for the output, then the level of containment that was chosen.

use std::io;
use std::process::Stdio;
use std::sync::Arc;

use tokio::net::unix::pipe;
use tokio::process::Command;

use super::driver::ProcessDriver;
use super::handle::ProcessHandle;
use super::output::{OutputReader, Source};
use super::simulated::MemoryPipe;
use super::spec::{ContainmentChoice, LaunchError, MARKER_VARIABLE, ProcessSpec};
use super::status_channel::status_channel;

/// Starts a command. Synchronous; it takes about as long as the system needs to start a process.
///
/// With a keeper, that the program itself cannot be started is known only a moment later: ask
/// [`ProcessHandle::wait_started`].
///
/// # Panics
/// Outside a tokio runtime with time enabled, and I/O unless the processes are simulated.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a specification is for one launch: its marker is unique"
)]
pub fn launch(
    spec: ProcessSpec,
) -> Result<(ProcessHandle, ProcessDriver, OutputReader), LaunchError> {
    let (status_tx, status) = status_channel();
    let (shared, driver, source) = match &spec.containment {
        ContainmentChoice::Simulated(system) => {
            let output = Arc::new(MemoryPipe::default());
            let reader = Arc::clone(&output);
            let (shared, driver) = super::simulated::launch(&spec, &**system, output, status_tx)?;
            (shared, driver, Source::Memory(reader))
        }
        real => {
            let (reader, writer) = io::pipe().map_err(LaunchError::setup("output pipe"))?;
            let reader = pipe::Receiver::from_owned_fd(reader.into())
                .map_err(LaunchError::setup("output pipe"))?;
            let (shared, driver) = match real {
                #[cfg(target_os = "linux")]
                ContainmentChoice::Keeper(keepers) => {
                    super::keeper_launch::launch(&spec, keepers, &writer, status_tx)?
                }
                _ => super::group::launch(&spec, writer, status_tx)?,
            };
            (shared, driver, Source::Pipe(reader))
        }
    };
    Ok((
        ProcessHandle::new(shared, status.clone()),
        driver,
        OutputReader::new(source, status),
    ))
}

/// What all levels have in common: directory, environment, output, an own process group.
pub(super) fn prepare(
    mut command: Command,
    spec: &ProcessSpec,
    output: io::PipeWriter,
) -> Result<Command, LaunchError> {
    let second = output
        .try_clone()
        .map_err(LaunchError::setup("output pipe"))?;
    for hidden in &spec.env_hidden {
        command.env_remove(hidden);
    }
    command
        .current_dir(&spec.cwd)
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .env(MARKER_VARIABLE, &*spec.marker)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(second)
        .process_group(0);
    Ok(command)
}

/// The directory or the program? The system gives the same error for both.
pub(super) fn directory_error(spec: &ProcessSpec) -> Option<LaunchError> {
    let failed = |source| LaunchError::Directory {
        cwd: spec.cwd.clone(),
        source,
    };
    match std::fs::metadata(&spec.cwd) {
        Err(source) => Some(failed(source)),
        Ok(found) if !found.is_dir() => Some(failed(io::ErrorKind::NotADirectory.into())),
        Ok(_) => None,
    }
}
