//! The machine, as the operating system and the far end of sockets show it.

use std::sync::Arc;

use allstop_core::{Extent, Receipt};

/// Look at the machine when a receipt was there.
#[derive(Debug, Clone)]
pub struct MachineLook {
    /// Extent of the stop.
    pub extent: Extent,
    /// The receipt; none where there was no answer in time.
    pub receipt: Option<Arc<Receipt>>,
    /// Command lines of the processes that ran.
    pub running: Vec<String>,
    /// Those of background work.
    pub background: Vec<String>,
    /// Connections that the server still saw open, of a model call that the receipt calls stopped.
    pub connections: usize,
}

/// Trace that a call left in the world.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallEffect {
    /// Id of the call.
    pub call: Arc<str>,
    /// Part of its work that it did.
    pub what: Arc<str>,
}
