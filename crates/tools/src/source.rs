//! Tools that change while an agent uses them.

use std::fmt;
use std::sync::Arc;

use crate::tool::Tool;

/// A list of tools that may change. An agent reads the list before each model call, and offers the current tools to the
/// model.
///
/// A running call keeps its tool, even after the tool has left the list.
pub trait ToolSource: Send + Sync + fmt::Debug {
    /// Version of the list, which grows with every change.
    fn version(&self) -> u64;

    /// The current tools. An agent leaves out a tool whose name is already taken.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;
}
