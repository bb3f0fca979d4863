//! Parts for tests of stoppable code: tools made of closures, a fake provider, and a real local model.
//!
//! To test your tool at every moment at which it can be stopped, start with [`assert_stop_safe!`] and the [`guide`];
//! for a whole agent, start with [`explore::explore`].
//!
//! ```
//! use std::time::Duration;
//!
//! use allstop_testkit::assert_stop_safe;
//! use allstop_tools::{Tool, tool};
//! use serde_json::Value;
//!
//! /// Waits, and ends as soon as a stop asks it to.
//! fn waits() -> impl Tool {
//!     tool("waits", "Waits", async |_: Value, cx| {
//!         cx.unless_stopped(tokio::time::sleep(Duration::from_secs(5))).await?;
//!         Ok("done")
//!     })
//! }
//!
//! assert_stop_safe!(waits(), {});
//! ```

pub mod check;
pub mod drive;
mod faulty_log;
pub mod guide;
mod installed_part;
pub mod llama;
pub mod nats_server;
pub mod observe;
pub mod openai_server;
pub mod own_loopback;
mod published_schema;
mod random;
mod report;
pub mod scenarios;
mod simulated_system;
mod stage;
mod stop_method;
mod stop_safe;
mod tool_fn;
mod violation;

/// Exploration of stops: stops a scenario at every point with every method.
pub mod explore {
    pub use crate::drive::by_kill::explore_kills;
    pub use crate::drive::by_point::{Exploration, explore};
    pub use crate::observe::{Moment, NEXT_MESSAGE, POLL, Point, Points, RunWitness};
    pub use crate::report::{CaseName, CheckReport, Failure, UnknownCase, VARIABLE};
    pub use crate::stage::{
        FOLLOW_UP, RunStage, RunningSubject, Scenario, ScriptedUser, Setup, Subject, SubjectPlay,
    };
    pub use crate::stop_method::{CAUSES, StopMethod, StoreFault, UnknownStopMethod};
}

pub use faulty_log::{FaultyLog, LogFault};
pub use published_schema::PublishedSchema;
pub use random::Random;
pub use simulated_system::{Behaviour, SimulatedSystem, SystemEvent, SystemEventKind, TreeView};
pub use stop_safe::StopSafe;
pub use tool_fn::ToolFn;

/// Used by the expansion of `assert_stop_safe!`.
#[doc(hidden)]
pub use serde_json::json as __json;
