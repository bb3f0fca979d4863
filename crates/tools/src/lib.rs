//! Tools an agent calls: the trait, the registry, permissions, a shell, files and search.
//!
//! Start with [`Tool`], which a tool implements, and [`ToolRegistry`], which an agent looks tools up in and which
//! checks the model's arguments before a call. Whether a call may run is decided by [`permission`].

pub mod background;
mod builtin;
pub mod files;
pub mod output;
pub mod permission;
pub mod registry;
pub mod schema;
pub mod shell;
pub mod tool;

pub use background::{BackgroundHost, BackgroundRegistry, BackgroundTool, BackgroundWork};
pub use builtin::builtin_tools;
pub use files::{FolderAccess, Workspace, file_tools};
pub use output::{BoundedOutput, OutputFolder, OutputLimits};
pub use permission::{Answer, Decision, PermissionPolicy, Permissions, Prompter, Question};
pub use registry::{RegisteredTool, RegistryError, ToolRegistry};
pub use shell::{ShellConfig, ShellTool};
pub use tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
