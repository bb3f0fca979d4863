//! Denied calls, for the outcome of a turn.

use std::sync::Arc;

use allstop_core::CallId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A call that did not run because it was denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    /// The call. The id of a sub-agent's call is a path that begins with the call or the background work that runs the
    /// sub-agent.
    pub call_id: CallId,
    /// The tool.
    #[schemars(with = "String")]
    pub tool: Arc<str>,
    /// Source and reason of the denial.
    pub reason: String,
}
