//! Creates a running system from a configuration.
//!
//! [`Config`] is the file `allstop.toml`. [`System::open`] creates a store, a model and a tree of scopes, in which all
//! work runs, from the configuration. [`System::new_session`] and [`System::resume_session`] return the handle of a
//! session; its agent has the configured tools, hooks and permissions. [`Envelope`] is the result of a run, for
//! scripts. [`AgentExecutor`] runs the agents as tasks.
//!
//! This crate does not read the environment or the home folder, does not print, and does not end the process. The
//! binary does all this, and passes the values as parameters.
//!
//! ```
//! use std::sync::Arc;
//!
//! use allstop_model::ScriptedModel;
//! use allstop_runtime::{Config, ModelChoice, SessionSetup, System, SystemOptions};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = std::env::current_dir()?;
//! let model = ScriptedModel::in_order_of_calls(vec!["Hello!".into()]);
//! let options = SystemOptions::new(Config::default(), folder).model(ModelChoice::Given(Arc::new(model)));
//! let system = System::open(options).await?;
//! let opened = system.new_session(None, SessionSetup::default()).await?;
//! let outcome = opened.session.send("Hi")?.await;
//! println!("{outcome:?}");
//! system.close().await;
//! # Ok(())
//! # }
//! ```

mod agent_executor;
mod command;
pub mod config;
mod cost;
mod definitions;
mod envelope;
mod error;
mod link_target;
mod output_folder;
mod prompt;
mod session_removal;
mod stream;
mod system;

pub use agent_executor::{AgentExecutor, AgentExecutorOptions, ContextConversations};
pub use command::{EVENT_BYTES_MAX, EVENT_VARIABLE};
pub use config::{Config, ConfigError, PriceConfig};
pub use cost::{Cost, ModelPrices, ModelUsage, SessionCost};
pub use definitions::{
    AgentDefinition, CommandDefinition, DefinitionFile, DefinitionFiles, DefinitionKind,
    Definitions, SkillDefinition, UserFolders,
};
pub use envelope::{DetachedWork, Envelope, EnvelopeSchema, TurnResult};
pub use error::{StartError, StartErrorKind};
pub use link_target::link_target;
pub use prompt::{
    ComposedPrompt, InstructionFile, ProjectInstructions, PromptSection, PromptTools,
};
pub use session_removal::{RemoveSessionError, remove_session_with_output};
pub use stream::{
    EventLine, EventSchema, EventsMissed, McpServerEvent, StreamEvent, StreamLine, WatchStreamEvent,
};
pub use system::{
    AutoCompaction, BUILTIN_SCRIPTS, BuiltinScript, InterruptedTurn, ModelChoice, OpenSession,
    OrphanedWork, QuestionRecipient, SessionMcpServer, SessionSetup, SessionTools, StoreChoice,
    System, SystemOptions, SystemPrompt, SystemStore, check_requests, is_secret_variable,
    mcp_login_options, mcp_servers, open_model, open_store, open_store_for_reading,
    rules_of_absent_servers, scan_orphans, unusable_project_servers, without_exempted,
};
