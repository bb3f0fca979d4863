//! Several managers over one log: each of them accepts messages and stops, and each task runs on one worker.
//!
//! The log of a task is the only truth about the task. A worker owns a task through its record
//! [`ExecutionStarted`](crate::TaskRecord::ExecutionStarted), which has the next epoch. The log refuses appends of an
//! older owner. Everything else is a hint, or a promise of a worker about itself:
//!
//! - A *wake-up* makes a worker read a task. It is sent before the record that it announces. A worker removes it only
//!   after it has read that the task needs no worker.
//! - A *lease* is the promise of a worker to stop its work by itself when it can no longer renew. Other workers end a
//!   lease by replacing the very renewal that they saw for too long, so a worker that still renews keeps its lease.
//! - A *question* makes the owner of a task read the task at once.

mod accept;
mod answer;
mod attend;
mod client_requests;
mod dead_letter;
mod dead_letter_retry;
mod index;
mod late_receipt;
mod lease;
mod lease_keeper;
mod link;
mod memory_link;
mod node;
mod owner_question;
mod owner_slot;
mod stop;
pub(crate) mod stop_delivery;
mod stop_step;
mod wake_up;
mod wake_up_loop;
mod worker;

pub use dead_letter::DeadLetter;
pub use dead_letter_retry::DeadLetterRetryError;
pub use lease::WorkerInfo;
pub use link::{AskedQuestion, ClusterLink, HeldWakeUp, LinkEntry, LinkFuture, PutError};
pub use memory_link::MemoryLink;
pub use node::{ClusterOptions, LeaseChange, LeaseHandler, RenewalHandler};
pub use stop_delivery::StopDelivery;

pub(crate) use node::ClusterNode;
