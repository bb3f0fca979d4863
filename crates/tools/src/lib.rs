//! Tools that an agent calls: the trait, the registry, permissions, a shell, files and search.
//!
//! Start with [`tool()`], which turns a function into a tool; with [`Tool`], the trait of a tool; and with
//! [`ToolRegistry`]. An agent looks up its tools in the registry, and the
//! registry validates the model's arguments before a call. [`permission`] decides whether a call may run.
//! [`builtin_tools`] creates the tools of Allstop: [`shell`] with its [`background`] work, and [`files`].
//!
//! ```
//! # use std::sync::Arc;
//! # use allstop_scope::{RootOptions, Scope, ScopeOptions};
//! # use allstop_tools::{ToolInvocation, ToolRegistry, Workspace, file_tools};
//! # use allstop_tools::{CallLink, McpMeta};
//! # use serde_json::json;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut tools = ToolRegistry::new();
//! for tool in file_tools(&Arc::new(Workspace::new(".")?)) {
//!     tools.register(tool)?;
//! }
//! let list = tools.get("list").ok_or("no such tool")?;
//! let arguments = json!({"path": "src"});
//! list.check_arguments(&arguments).map_err(|error| error.message)?;
//! let turn = Scope::root("turn", RootOptions::current());
//! let answer = list.tool().call(ToolInvocation {
//!     session_id: "session".into(),
//!     call_id: "call_1".into(),
//!     name: "list".into(),
//!     arguments: Arc::new(arguments),
//!     scope: turn.child("call_1", ScopeOptions::default())?,
//!     trace: None,
//!     link: CallLink::default(),
//!     mcp_meta: McpMeta::default(),
//! });
//! let answer = answer.await.map_err(|error| error.message)?;
//! assert!(answer.content.contains("lib.rs"));
//! # Ok(())
//! # }
//! ```

#![cfg_attr(
    not(feature = "search"),
    expect(dead_code, reason = "functions that only `search` and `shell` call")
)]

pub mod background;
#[cfg(feature = "shell")]
mod builtin;
mod call_journal;
mod call_link;
mod call_progress;
mod command;
pub mod effect;
pub mod external;
#[cfg(feature = "shell")]
mod file_state;
#[cfg(feature = "shell")]
pub mod files;
mod function;
#[cfg(feature = "mcp")]
pub mod mcp;
mod mcp_meta;
pub mod names;
pub mod output;
pub mod permission;
pub mod registry;
pub mod schema;
pub mod server_question;
#[cfg(feature = "shell")]
pub mod shell;
pub mod source;
pub mod tool;

pub use background::{
    AnswerIfLost, BackgroundChanges, BackgroundEnd, BackgroundHost, BackgroundRegistry,
    BackgroundTool, BackgroundWork, OutputSlice, TaskCx, TaskOutput, TaskSpec, promote_task,
    start_task,
};
#[cfg(feature = "shell")]
pub use builtin::builtin_tools;
pub use call_journal::{CallJournal, JournalClosed};
pub use call_link::{CallLink, CallObserver, NotPromotable};
pub use call_progress::CallProgress;
pub use command::{CommandLimit, RunningCommand, command_name, exit_text};
pub use effect::{DiffLine, DiffLineKind, EffectPreview, FileChange};
pub use external::{ExternalEvent, ExternalOptions, ExternalRequests, external_tools};
#[cfg(feature = "shell")]
pub use files::{FileBeginning, FolderAccess, Workspace, file_tools};
pub use function::{FnTool, ToolCx, blocking_tool, tool};
pub use mcp_meta::{McpMeta, McpOrigin};
pub use output::{
    BoundedOutput, OutputBudget, OutputBudgetLimits, OutputFolder, OutputLimits, removed_output,
};
pub use permission::{
    Denial, PermissionAnswer, PermissionDecision, PermissionPolicy, PermissionQuestion,
    Permissions, Prompter,
};
pub use registry::{
    RegisteredTool, RegistryError, SchemaCheck, TOOL_NAME_LEN_MAX, ToolRegistry, is_valid_tool_name,
};
pub use server_question::{FormAnswer, ServerQuestion, WantedInput};
#[cfg(feature = "shell")]
pub use shell::{ShellConfig, ShellTool};
pub use source::ToolSource;
pub use tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
