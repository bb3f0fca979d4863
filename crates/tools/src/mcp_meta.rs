//! Metadata of a request to an MCP server, and the origin of a tool from such a server.

use std::sync::Arc;

use serde_json::{Map, Value};

/// An MCP server, and the name of a tool there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpOrigin {
    /// Name of the server in the configuration.
    pub server: Arc<str>,
    /// Name of the tool at the server.
    pub tool: Arc<str>,
}

/// Metadata of a request for a tool call, which the field `_meta` of the request contains. The transport always adds a
/// token for progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum McpMeta {
    /// The trace context of the call.
    #[default]
    Trace,
    /// These fields instead of the trace context.
    Fields(Arc<Map<String, Value>>),
    /// No fields.
    Empty,
}
