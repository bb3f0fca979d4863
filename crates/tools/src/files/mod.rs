//! Files and search: `read`, `write`, `edit`, `list`, `glob`, `grep`.
//!
//! They stay inside their [`Workspace`], work on threads that the scope counts, look at the scope as they go, and
//! answer with bounded text. What a file holds is never trusted: sizes, kinds, encodings and names are checked.

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

pub(crate) use tool::StopCheck;
pub use workspace::{FolderAccess, Workspace};

use crate::tool::Tool;

/// The file tools over a workspace.
pub fn file_tools(workspace: &Arc<Workspace>) -> Vec<Arc<dyn Tool>> {
    vec![
        tool::file_tool::<read::Read>(workspace),
        tool::file_tool::<write::Write>(workspace),
        tool::file_tool::<edit::Edit>(workspace),
        tool::file_tool::<list::List>(workspace),
        tool::file_tool::<glob::Glob>(workspace),
        tool::file_tool::<grep::Grep>(workspace),
    ]
}
