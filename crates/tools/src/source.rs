//! Tools that change while an agent uses them.

use std::fmt;
use std::sync::Arc;

use crate::tool::Tool;

/// A changing list of tools: an agent reads it before each model call, and offers the model the tools of that moment.
///
/// A running call keeps its tool after the tool has left the list.
pub trait ToolSource: Send + Sync + fmt::Debug {
    /// Version of the list; it grows with every change.
    fn version(&self) -> u64;

    /// The current tools. A tool whose name is taken is left out.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;
}
