//! Tools of two sources.

use std::sync::Arc;

use allstop_tools::{Tool, ToolSource};

/// The tools of two sources, the tools of the first source first.
#[derive(Debug)]
pub(super) struct JoinedTools(pub(super) [Arc<dyn ToolSource>; 2]);

impl ToolSource for JoinedTools {
    fn version(&self) -> u64 {
        self.0.iter().map(|source| source.version()).sum()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0.iter().flat_map(|source| source.tools()).collect()
    }
}
