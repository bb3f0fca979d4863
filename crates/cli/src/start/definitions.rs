//! Commands, skills and agents of a session, from the files of the user and of a trusted project.

use std::sync::Arc;

use allstop_runtime::{DefinitionFiles, Definitions};

use super::StartReporter;
use crate::chat::without_builtin_names;
use crate::host::ProcessHost;

/// Maximum number of lines about files that are left out.
const PROBLEMS_SHOWN_MAX: usize = 5;

/// Reads the files of the user, adds the files of the project, and prints the files that are left out. Blocks the thread
/// while it reads.
pub(crate) fn load(project: &DefinitionFiles, reporter: &StartReporter) -> Arc<Definitions> {
    let definitions = read(project);
    for problem in definitions.problems.iter().take(PROBLEMS_SHOWN_MAX) {
        reporter.note(problem);
    }
    let more = definitions
        .problems
        .len()
        .saturating_sub(PROBLEMS_SHOWN_MAX);
    if more > 0 {
        reporter.note(&format!(
            "{more} more files are ignored: `allstop doctor` lists them"
        ));
    }
    Arc::new(definitions)
}

/// Reads the files of the user, and adds the files of the project.
pub(crate) fn read(project: &DefinitionFiles) -> Definitions {
    let user = DefinitionFiles::of_user(&ProcessHost::user_folders());
    without_builtin_names(Definitions::parse([&user, project]))
}
