//! Compatibility with A2A 0.3 over JSON-RPC, on the address of version 1.
//!
//! The requests and the responses are translated, and the operations of the service are those of version 1. So access
//! control, limits, receipts in the metadata, and numbered events apply to both versions.
//!
//! Differences of version 0.3 that are more than names:
//! - Objects have a discriminator `kind`, and a result has no field for its type.
//! - The last status update of a stream has `final: true`.
//! - An error before the first event of a stream is an event of this stream, because the clients read only events.
//! - A stream contains either one message or the events of a task. A message after a task becomes the end of the task.
//! - `tasks/pushNotificationConfig/get` without the id of a configuration returns the first one.
//! - The data of a part is an object. Other data is wrapped, as in the official SDKs.

pub(crate) mod card;
pub(crate) mod comments;
mod dispatch;
pub(crate) mod event;
mod from_v0_3;
mod to_v0_3;
mod types;

pub(crate) use dispatch::answer;
