//! Configuration made into a running system.
//!
//! [`Config`] is the file `allstop.toml`. [`System::open`] makes a store, a model and a tree of scopes out of it;
//! [`System::new_session`] and [`System::resume_session`] give an agent with its tools and the history of one session;
//! [`Envelope`] is what a run came to, for scripts.
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
    Asks, FoundWork, InterruptedTurn, Kept, KeptWork, ModelChoice, NotKept, OpenSession,
    StoreChoice, System, SystemOptions, TalkedSession, found_work, open_store,
};
