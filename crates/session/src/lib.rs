//! Sessions: conversations that people can interrupt, extend and leave running.
//!
//! [`AgentSessions::session`] opens one session of an agent, and [`Sessions`] creates and resumes many; a [`Session`]
//! is a cheap handle to one session. Each session has one owner: a task that runs the turns one after another and is
//! the only writer of the session's log. Handles send [messages](Session::send) to the owner, stop
//! [a target](StopTarget) and [subscribe to events](Session::subscribe). Dropping a handle, or a future that waits,
//! stops nothing.
//!
//! ```
//! # use allstop_agent::{Agent, Outcome};
//! # use allstop_core::CauseKind;
//! # use allstop_model::{Pause, Reply, ScriptedModel};
//! use allstop_session::{AgentSessions as _, FollowUp, StopTarget};
//! # use allstop_session::SessionEventKind;
//! # use allstop_agent::AgentEvent;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let endless = || Reply::text("Once upon a time").pause(Pause::Forever);
//! # let replies = vec![endless(), Reply::text("Better."), endless()];
//! # let model = ScriptedModel::in_order_of_calls(replies);
//! let agent = Agent::new(model).build();
//! let session = agent.session().follow_up(FollowUp::Interrupt).open().await?;
//!
//! # let mut events = session.watch();
//! let first = session.send("Tell me a long story")?;
//! # loop {
//! #     let event = events.next().await.expect("the session is open");
//! #     if matches!(event.kind, SessionEventKind::Live(AgentEvent::TextDelta { .. })) { break }
//! # }
//! let second = session.send("No, a short one")?; // interrupts the first
//! assert_eq!(second.await.into_result()?.to_string(), "Better.");
//! let Outcome::Stopped(receipt) = first.await else { panic!("it was replaced") };
//! assert_eq!(receipt.cause().kind, CauseKind::Superseded);
//!
//! let third = session.send("And another")?;
//! let receipt = session.stop(&StopTarget::Turn, CauseKind::User).await;
//! assert!(receipt.quiet());
//! assert!(third.await.answer().is_none());
//! session.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Order of events
//! A message gets its place in the queue at once ([`Session::send`]). The turn of the message starts when all earlier
//! turns have ended, and the message gets its outcome when this turn ends. The event `assistant_idle` follows, with a
//! list of the background work that still runs. The event `session_idle` follows once all attached background work has
//! ended; detached work, which outlives the session, does not delay it. The model receives a note about ended
//! background work with the next message, or at once ([`OnBackgroundEnd`]).
//!
//! # Modules
//! - `registry` is the list of the open sessions of a system, with reservations of their ids; `parts` are values that
//!   servers attach to sessions.
//! - `intake` accepts messages and commands from handles. `queue` decides the order of the messages, synchronously and
//!   without a runtime. `queued_turn` is one queued turn, which a stop covers from the moment when its message is sent.
//! - `inner` is the state that handles and owner share; `owner` is the owner's task; `events` distributes events to
//!   subscribers.
//! - `stop` accepts stops; `stop_plan` defines the targets of stops and finds the scopes that a stop covers;
//!   `stop_handle` is the handle of an accepted stop.
//! - `orphan_scan` compares the background work in the log with the running processes. `orphans` lists the work that
//!   runs without this process, and `orphan_stop` stops it. `orphaned_calls` finds processes of calls whose owner and
//!   keeper were killed, by the markers of `call_marker`. `orphan_search` is the result of such a search.

mod answer_result;
mod call_marker;
mod command;
mod compaction;
mod events;
mod follow_up;
mod inner;
mod intake;
mod message;
pub mod orphan_scan;
pub mod orphan_search;
mod orphan_stop;
pub mod orphaned_calls;
mod orphans;
mod owner;
mod parts;
mod questions;
mod queue;
mod queued_turn;
mod registry;
mod server_questions;
mod session;
mod session_builder;
mod sessions;
mod side_question;
mod source;
mod stop;
mod stop_follow;
mod stop_handle;
mod stop_list;
mod stop_plan;
mod wait;
mod waiting;

pub use answer_result::AnswerResult;
pub use call_marker::{CallMarker, marker_prefix};
pub use command::{
    BackgroundDetachError, BackgroundStartError, DetachResult, ReleaseError, UndoError,
};
pub use compaction::{CompactError, CompactionLimits, CompactionResult};
pub use events::{
    BackgroundItem, LiveEvents, OpenQuestion, OpenServerQuestion, SessionEvent, SessionEventKind,
    Subscription,
};
pub use follow_up::{FollowUp, InvalidFollowUp};
pub use message::{MessageDeadline, MessageHandle, MessageOutcome, NewMessage, SendError};
pub use queue::{Admission, MessageRefused};
pub use registry::{ReserveResult, SessionRegistry, SessionReservation};
pub use server_questions::FormClient;
pub use session::{Session, WAIT_DEFAULT};
pub use session_builder::{AgentSessions, OpenSessionError, SessionBuilder};
pub use sessions::{OpenError, Sessions};
pub use side_question::SideQuestionError;
pub use source::{AgentRequest, AgentSource, OnBackgroundEnd, SessionAgent, SessionOptions};
pub use stop_handle::SessionStop;
pub use stop_plan::StopTarget;
pub use wait::WaitResult;
pub use waiting::QueuedMessage;
