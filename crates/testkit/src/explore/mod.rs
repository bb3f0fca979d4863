//! The explorer.

mod aftermath;
mod case;
mod child_processes;
pub(crate) mod clockwork;
mod exploration;
mod failure;
mod kill;
mod live;
mod own;
mod parts;
mod point;
mod processes;
mod replay;
mod report;
mod scenario;
mod session;
mod stage;
mod store;
mod subject;
mod way;
mod world;

#[cfg(test)]
pub(crate) use exploration::disturbed;
pub(crate) use exploration::undisturbed;
pub(crate) use parts::{INSIDE, Watch};
pub(crate) use replay::is_asked_for;

pub use aftermath::{Aftermath, Answered, Asked, Disturbance, Gone};
pub use exploration::{Exploration, explore};
pub use kill::{KILL_CHECKERS, KillChecker, Killed, Told, ToldOutcome, explore_kills};
pub(crate) use point::APPEND;
pub use point::{Moment, POLL, Point, Points};
pub use replay::{CaseName, UnknownCase, VARIABLE};
pub use report::{Failure, Report};
pub use scenario::{Scenario, Setup};
pub use session::{FOLLOW_UP, SentMessage, SessionAftermath, SessionPlay, Talk, Undone};
pub use stage::Stage;
pub use store::StoreFault;
pub use subject::{Play, Running, Subject};
pub use way::{CAUSES, UnknownWay, Way};
pub use world::{Answer, CallEnding, LifeGuard, Lived, Order, World};

/// The message that is sent after each explored run: the session must take it.
pub const NEXT_MESSAGE: &str = "the next message";
