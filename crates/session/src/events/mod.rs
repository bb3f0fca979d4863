//! Events of a session for its subscribers.
//!
//! Durable events are the records of the session's log, each with its number: a subscriber misses none of them, even if
//! it is late or slow. Live events are for display: bounded, sent without waiting, and dropped if a subscriber lags too
//! far, which then gets the number of missed events.

mod event;
mod hub;
mod live;
mod subscription;

pub use event::{BackgroundItem, OpenQuestion, SessionEvent, SessionEventKind};
pub(crate) use hub::EventHub;
pub use live::LiveEvents;
pub use subscription::Subscription;
