//! Tools an agent calls: the trait, the registry, permissions, a shell, files and search.
//!
//! Start with [`Tool`], which a tool implements, and [`ToolRegistry`], which an agent looks tools up in and which
//! checks the model's arguments before a call. Whether a call may run is decided by [`permission`].

pub mod permission;
pub mod registry;
pub mod tool;

pub use permission::{Answer, Decision, PermissionPolicy, Permissions, Prompter, Question};
pub use registry::{RegisteredTool, RegistryError, ToolRegistry};
pub use tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
