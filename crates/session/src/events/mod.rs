//! Events of a session for its subscribers.
//!
//! Durable events are the records of the session's log, each with its number. Every subscriber receives all durable
//! events, even if it is late or slow. Live events are for display: bounded, and sent without waiting. If a subscriber
//! lags too far, the oldest live events are dropped, and the subscriber receives the number of dropped events.

mod event;
mod hub;
mod live;
mod subscription;

pub use event::{BackgroundItem, OpenQuestion, OpenServerQuestion, SessionEvent, SessionEventKind};
pub(crate) use hub::EventHub;
pub use live::LiveEvents;
pub use subscription::Subscription;
