//! Events of a session, for whoever watches it.
//!
//! Durable events are the records of its log, each with its number: a subscriber misses none, however late or slow it
//! is. The others are for eyes: bounded, never waited for, lost when a subscriber lags too far, which it is then told.

mod event;
mod hub;
mod live;
mod subscription;

pub use event::{BackgroundItem, OpenQuestion, SessionEvent, SessionEventKind};
pub(crate) use hub::Hub;
pub use live::LiveEvents;
pub use subscription::Subscription;
