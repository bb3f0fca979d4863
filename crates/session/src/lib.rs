//! Conversations that people interrupt, add to and leave running.
//!
//! [`Sessions`] makes and resumes them; a [`Session`] is a cheap handle of one. Each has one owner, a task that alone
//! writes to the session's log and runs its turns one after another. Handles send it [messages](Session::send), stop
//! [what they name](StopTarget) and [watch](Session::subscribe). Dropping a handle, or the future of anybody who waits,
//! stops nothing.
//!
//! ```
//! # use std::sync::Arc;
//! # use allstop_agent::Agent;
//! # use allstop_core::{Cause, CauseKind};
//! # use allstop_log::MemoryLog;
//! # use allstop_model::{Pause, Reply, ScriptedModel};
//! # use allstop_scope::{RootOptions, Scope};
//! use allstop_session::{FollowUp, SessionOptions, Sessions, StopTarget};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let replies = vec![Reply::text("Better."), Reply::text("…").pause(Pause::Forever)];
//! # let model = ScriptedModel::in_order_of_calls(replies);
//! # let agent = Agent::builder(Arc::new(model)).build();
//! let scope = Scope::root("my program", RootOptions::current());
//! let options = SessionOptions { follow_up: FollowUp::Interrupt, ..SessionOptions::default() };
//! let sessions = Sessions::new(Arc::new(MemoryLog::new()), scope, Arc::new(agent), options);
//! let session = sessions.create(None, "/tmp").await?;
//!
//! let first = session.send("Tell me a long story")?;
//! let second = session.send("No, a short one")?; // interrupts the first
//! assert_eq!(&*second.outcome().await.output, "Better.");
//! assert_eq!(first.outcome().await.cause.as_ref().unwrap().kind, CauseKind::Superseded);
//!
//! let third = session.send("And another")?;
//! let receipt = session.stop(&StopTarget::Turn, Cause::new(CauseKind::User)).receipt().await;
//! assert!(receipt.quiet());
//! assert!(!third.outcome().await.is_completed());
//! session.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What follows what
//! A message gets its place at once ([`Session::send`]); its turn starts when those before it have their ending. Its
//! outcome comes when that turn has its own. Then `assistant_idle` is told, with what still runs in the background, and
//! `session_idle` once nothing attached does. What ends in the background is told to the model with the next message, or
//! at once ([`OnBackgroundEnd`]).
//!
//! The modules: `desk` decides who is next, synchronously and without a runtime; `slot` is the place of one message,
//! which a stop covers from the moment of its sending; `shared` is what handles and owner have in common; `driver` is
//! the owner; `events` is what subscribers see.

mod command;
mod compaction;
mod desk;
mod driver;
mod events;
mod follow_up;
pub mod found;
mod left;
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

pub use command::{DetachError, Detached, UndoError};
pub use compaction::{CompactError, Compacted, Compaction};
pub use desk::{Admission, NotAdmitted};
pub use events::{
    BackgroundItem, LiveEvents, OpenQuestion, SessionEvent, SessionEventKind, Subscription,
};
pub use follow_up::{FollowUp, NoFollowUp};
pub use message::{MessageDeadline, MessageOutcome, NewMessage, SendError, Sent};
pub use questions::Answered;
pub use session::{Session, WAIT_DEFAULT};
pub use sessions::{OpenError, Sessions};
pub use source::{AgentRequest, AgentSource, OnBackgroundEnd, SessionAgent, SessionOptions};
pub use stopping::{StopTarget, Stopping};
pub use wait::Waited;
