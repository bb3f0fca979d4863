//! Conversations that people interrupt, add to and leave running.
//!
//! [`Sessions`] makes and resumes them; a [`Session`] is a cheap handle of one. Each has one owner, a task that alone
//! writes to the session's log and runs its turns one after another. Handles send it [messages](Session::send), stop
//! [what they name](StopTarget) and [watch](Session::subscribe). Dropping a handle, or the future of anybody who waits,
//! stops nothing.
//!
//! What is where: `desk` decides who is next, synchronously and without a runtime; `slot` is the place of one message,
//! which a stop covers from the moment of its sending; `shared` is what handles and owner have in common; `driver` is
//! the owner; `events` is what subscribers see.

mod command;
mod compaction;
mod desk;
mod driver;
mod events;
mod follow_up;
pub mod found;
mod message;
mod questions;
mod session;
mod sessions;
mod shared;
mod slot;
mod source;
mod stop;
mod stopping;
mod wait;

pub use command::{DetachError, UndoError};
pub use compaction::{CompactError, Compacted, Compaction};
pub use desk::{Admission, NotAdmitted};
pub use events::{BackgroundItem, OpenQuestion, SessionEvent, SessionEventKind, Subscription};
pub use follow_up::{FollowUp, NoFollowUp};
pub use message::{MessageOutcome, NewMessage, SendError, Sent};
pub use questions::Answered;
pub use session::{Session, WAIT_DEFAULT};
pub use sessions::{OpenError, Sessions};
pub use source::{AgentRequest, AgentSource, OnBackgroundEnd, SessionAgent, SessionOptions};
pub use stopping::{StopTarget, Stopping};
pub use wait::Waited;
