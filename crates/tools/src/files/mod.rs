//! Files and search: `read`, `write`, `edit`, `list`, `glob`, `grep`.
//!
//! The tools stay inside their [`Workspace`], and return bounded text. They run on threads that are registered in the
//! scope of the call, and check for a stop while they run. The tools never trust a file: they check its size, kind,
//! encoding and name.

mod beginning;
mod edit;
mod error;
mod glob;
mod grep;
mod list;
mod open;
mod read;
mod replace;
mod reserved;
mod tool;
mod walk;
mod workspace;
mod write;

use std::sync::Arc;

pub use beginning::FileBeginning;
pub(crate) use tool::StopCheck;
pub use workspace::{FolderAccess, Workspace};

use crate::tool::Tool;

/// Creates the file tools of a workspace.
pub fn file_tools(workspace: &Arc<Workspace>) -> Vec<Arc<dyn Tool>> {
    vec![
        tool::file_tool::<read::ReadArguments>(workspace),
        tool::file_tool::<write::WriteArguments>(workspace),
        tool::file_tool::<edit::EditArguments>(workspace),
        tool::file_tool::<list::ListArguments>(workspace),
        tool::file_tool::<glob::GlobArguments>(workspace),
        tool::file_tool::<grep::GrepArguments>(workspace),
    ]
}
