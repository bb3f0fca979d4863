//! Push notifications: each event of a task is sent to the webhooks that the task's owner has set.
//!
//! Every configuration of a webhook has one delivery, which is work in a scope. The delivery reads the log of its task
//! from a cursor, and sends one event after another. A slow webhook therefore delays neither the task nor another
//! webhook. The log stream `push/<task id>` contains the configurations and the number of the last delivered event.
//! After a crash, deliveries resume after that number, so each event is delivered at least once.
//!
//! A client chooses the address to which the server connects. The guard therefore permits only public addresses, and
//! addresses that the operator permits. The guard checks the actual address of each connection.

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
mod removal;
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
