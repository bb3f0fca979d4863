//! Sessions, explored: what a user does in one, stopped and interrupted at every point.
//!
//! The session sits at the same seams as an agent alone: its log, its model and its tools have points, its records a
//! clock. Its user and its subscriber are part of the main future, so that what is seen and what is done have one order.

mod after;
mod aftermath;
mod live;
mod play;
mod run;
mod talk;

pub use aftermath::{SentMessage, SessionAftermath, Undone};
pub use play::SessionPlay;
pub(crate) use run::{play_next, run};
pub use talk::Talk;

/// The message that is sent while another is answered, under each policy.
pub const FOLLOW_UP: &str = "the follow-up";
