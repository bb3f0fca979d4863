//! Parts for tests of things that stop: tools made of closures, a fake provider, a real local model.

pub mod check;
pub mod explore;
pub mod llama;
pub mod openai_server;
pub mod scenarios;
mod simulated_system;
mod stop_safe;
mod tool_fn;

pub use simulated_system::{Behaviour, SimulatedSystem, SystemEvent, SystemEventKind, TreeView};
pub use stop_safe::StopSafe;
pub use tool_fn::ToolFn;

/// For what `assert_stop_safe!` is made of.
#[doc(hidden)]
pub use serde_json::json as __json;
