//! Configuration made into a running system.
//!
//! [`Config`] is the file `allstop.toml`. [`System::open`] makes a store, a model and a tree of scopes out of it;
//! [`System::new_session`] and [`System::resume_session`] give the handle of a session, whose agent has the tools,
//! hooks and permissions of the configuration; [`Envelope`] is what a run came to, for scripts.
//!
//! Nothing here reads the environment or the home folder, prints, or exits: that is the binary's, and all of it comes
//! in as parameters.

mod command;
pub mod config;
mod envelope;
mod error;
mod stream;
mod system;

pub use command::{EVENT_BYTES_MAX, EVENT_VARIABLE};
pub use config::{Config, ConfigError};
pub use envelope::{Envelope, EnvelopeSchema, LeftWork};
pub use error::{StartError, StartErrorKind};
pub use stream::{EventLine, EventSchema, EventsMissed, McpServerEvent, StreamEvent, StreamLine};
pub use system::{
    Asks, FoundWork, InterruptedTurn, ModelChoice, OpenSession, StoreChoice, System, SystemOptions,
    found_work, is_secret_variable, open_store,
};
