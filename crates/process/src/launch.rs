//! Launching a command at the chosen level of containment.

use std::sync::Arc;

use crate::containment::TreeLauncher;
use crate::driver::ProcessDriver;
use crate::handle::ProcessHandle;
use crate::launch_error::LaunchError;
use crate::output::OutputReader;
use crate::platform::ProcessGroups;
use crate::spec::{ContainmentChoice, ProcessSpec};
use crate::status_channel::status_channel;

/// Starts a command. The function is synchronous, and takes about as long as the system needs to start a process.
///
/// With a keeper, this function returns before the program has started. To get an error of the program itself, call
/// [`ProcessHandle::wait_started`].
///
/// # Panics
/// If called outside a tokio runtime with time and I/O enabled. A [`Custom`](ContainmentChoice::Custom) level may not
/// need such a runtime.
pub fn launch(
    spec: ProcessSpec,
) -> Result<(ProcessHandle, ProcessDriver, OutputReader), LaunchError> {
    let (status_tx, status) = status_channel();
    let launcher: Arc<dyn TreeLauncher> = match &spec.containment {
        ContainmentChoice::Keeper(keepers) => Arc::clone(keepers) as _,
        ContainmentChoice::Inherit | ContainmentChoice::GroupAndMarker => Arc::new(ProcessGroups),
        ContainmentChoice::Custom(launcher) => Arc::clone(launcher),
    };
    let tree = launcher.launch(&spec, status_tx)?;
    let handle = ProcessHandle::new(spec.marker, tree.containment, status.clone());
    Ok((handle, tree.driver, OutputReader::new(tree.output, status)))
}
