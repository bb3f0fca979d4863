//! Tools an agent calls: the trait, permissions, a shell, files and search.

pub mod tool;

pub use tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
