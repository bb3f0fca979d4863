//! Parts for tests of things that stop: tools made of closures, a fake provider, a real local model.
//!
//! To try a tool of yours at every moment at which it can be stopped, start with [`assert_stop_safe!`] and the
//! [`guide`]; for a whole agent, with [`explore::explore`].

pub mod check;
pub mod explore;
mod faulty_log;
pub mod guide;
pub mod llama;
pub mod openai_server;
pub mod random_stops;
pub mod scenarios;
mod simulated_system;
pub mod soak;
mod stop_safe;
mod tool_fn;

pub use faulty_log::{FaultyLog, LogFault};
pub use simulated_system::{
    Behaviour, SimulatedLife, SimulatedSystem, SimulatedTree, SystemEvent, SystemEventKind,
    TreeView, contain,
};
pub use stop_safe::StopSafe;
pub use tool_fn::ToolFn;

/// For what `assert_stop_safe!` is made of.
#[doc(hidden)]
pub use serde_json::json as __json;
