//! The built-in tools.

use std::sync::Arc;

use crate::background::{BackgroundHost, BackgroundTool};
use crate::files::{Workspace, file_tools};
use crate::shell::{ShellConfig, ShellTool};
use crate::tool::Tool;

/// Creates the built-in tools of one session.
pub fn builtin_tools(
    workspace: &Arc<Workspace>,
    shell: ShellConfig,
    host: &Arc<dyn BackgroundHost>,
) -> Vec<Arc<dyn Tool>> {
    let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(ShellTool::new(shell, Arc::clone(host)))];
    tools.extend(file_tools(workspace));
    tools.push(Arc::new(BackgroundTool::new(Arc::clone(host))));
    tools
}
