//! Parts for tests of things that stop: tools made of closures, a fake provider, a real local model.

pub mod check;
pub mod explore;
pub mod llama;
pub mod openai_server;
pub mod scenarios;
mod simulated_system;
mod tool_fn;

pub use simulated_system::{Behaviour, SimulatedSystem, SystemEvent, SystemEventKind, TreeView};
pub use tool_fn::ToolFn;
