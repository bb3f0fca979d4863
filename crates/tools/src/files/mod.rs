//! Files: `read`, `write`, `edit`, `list`; with the feature `search` also `glob` and `grep`.
//!
//! The tools stay inside their [`Workspace`], and return bounded text. They run on threads that are registered in the
//! scope of the call, and check for a stop while they run. The tools never trust a file: they check its size, kind,
//! encoding and name.

mod beginning;
mod edit;
mod error;
#[cfg(feature = "search")]
mod glob;
#[cfg(feature = "search")]
mod grep;
mod list;
mod open;
mod read;
mod replace;
mod reserved;
mod tool;
#[cfg(feature = "search")]
mod walk;
mod workspace;
mod write;

#[cfg(feature = "search")]
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "search")]
use allstop_scope::WorkCx;

pub use beginning::FileBeginning;
pub(crate) use tool::StopCheck;
pub use workspace::{FolderAccess, Workspace};

use crate::tool::Tool;

#[cfg(feature = "search")]
/// Names of at most `most` files below a folder, relative to it, in order, without ignored files and without `.git`.
/// Ends early at a stop of the work.
pub fn file_names(folder: &Path, most: usize, cx: &WorkCx) -> Vec<String> {
    let mut names = Vec::new();
    let stop = StopCheck::of(cx.clone());
    // An unreadable folder has no names.
    let _ended = walk::walk_folder(folder, &stop, |file| {
        let name = file.strip_prefix(folder).ok().and_then(Path::to_str);
        names.extend(name.map(str::to_owned));
        names.len() < most
    });
    names
}

/// Creates the file tools of a workspace.
pub fn file_tools(workspace: &Arc<Workspace>) -> Vec<Arc<dyn Tool>> {
    vec![
        tool::file_tool::<read::ReadArguments>(workspace),
        tool::file_tool::<write::WriteArguments>(workspace),
        tool::file_tool::<edit::EditArguments>(workspace),
        tool::file_tool::<list::ListArguments>(workspace),
        #[cfg(feature = "search")]
        tool::file_tool::<glob::GlobArguments>(workspace),
        #[cfg(feature = "search")]
        tool::file_tool::<grep::GrepArguments>(workspace),
    ]
}
