//! Push notifications: each event of a task, sent to the webhooks that its owner has set.
//!
//! Every configuration has one delivery, which is work in a scope. It reads the log of its task by cursor and sends one
//! event after another, so a slow webhook delays neither the task nor another webhook. The configurations and the number
//! of the last delivered event are in the log, in the stream `push/<task id>`: after a crash, deliveries continue
//! behind that number, so each event is delivered at least once.
//!
//! A client chooses where the server connects to. The guard therefore lets only public addresses through, and those
//! that the operator allows. It checks the very address of each connection.

mod config;
mod delivery;
mod guard;
#[cfg(test)]
mod guard_tests;
mod notifications;
mod options;
mod record;
#[cfg(test)]
mod record_tests;
mod resolver;
mod retry;
#[cfg(test)]
mod retry_tests;
mod sender;
mod shared;
mod signature;
mod slots;
mod store;

pub(crate) use config::PushConfig;
pub use notifications::{OpenPushError, PushNotifications};
pub use options::PushOptions;
pub use resolver::{HostResolver, SystemResolver};
pub use signature::{PushSecret, ShortPushSecret};
pub use store::PushStoreError;
