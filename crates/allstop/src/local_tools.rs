//! The built-in tools of a session.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use allstop_session::{AgentRequest, marker_prefix};
use allstop_tools::{BackgroundHost, OutputFolder, ShellConfig, Tool, Workspace, builtin_tools};

/// Creates the tools that act on this machine, for [`SessionBuilder::tools`](crate::SessionBuilder::tools). File tools work
/// only inside `folder`. Commands run in `folder` and can do anything that this process can do. Long output goes to files in
/// `output`. The containment of the commands is the one of the agent's scope: pass a scope with
/// [`RootOptions::containment`](allstop_scope::RootOptions::containment) to
/// [`AgentBuilder::scope`](crate::AgentBuilder::scope). By default it is a process group and a marker.
///
/// # Errors
/// If the folder cannot be opened.
pub fn local_tools(
    folder: impl Into<PathBuf>,
    output: impl Into<PathBuf>,
) -> io::Result<impl Fn(&AgentRequest) -> Vec<Arc<dyn Tool>> + Send + Sync + 'static> {
    let folder = folder.into();
    let workspace = Arc::new(Workspace::new(&folder)?);
    let output = Arc::new(OutputFolder::new(output));
    Ok(move |session: &AgentRequest| {
        let shell = ShellConfig::new(&folder, Arc::clone(&output))
            .marker_prefix(marker_prefix(&session.session));
        let host: Arc<dyn BackgroundHost> = Arc::clone(&session.background) as _;
        builtin_tools(&workspace, shell, &host)
    })
}
