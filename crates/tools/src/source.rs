//! Tools that come and go while an agent has them.

use std::fmt;
use std::sync::Arc;

use crate::tool::Tool;

/// Tools that come and go: an agent looks before each model call, and tells the model of those that there are then.
///
/// A call that runs keeps its tool, whatever becomes of the list.
pub trait ToolSource: Send + Sync + fmt::Debug {
    /// The number of the list as it is now; it grows with every change.
    fn version(&self) -> u64;

    /// The tools as they are now. One whose name is taken is left out.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;
}
