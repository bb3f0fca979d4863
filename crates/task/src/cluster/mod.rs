//! Several managers that share one log. Each manager accepts messages and stop requests; one worker runs each task.
//!
//! The state of a task is only in its log. A worker becomes the owner of a task with a record
//! [`ExecutionStarted`](crate::TaskRecord::ExecutionStarted). The record has the next epoch (the number of the
//! execution), and from then on the log refuses appends of earlier owners. Everything else is only a hint, or a promise
//! of a worker about its own work:
//!
//! - A *wake-up* makes a worker read a task. Each wake-up announces a record, and is sent before this record is stored.
//!   A worker removes a wake-up only after the log shows that the task needs no worker.
//! - A *lease* is a promise of a worker: if the worker can no longer renew the lease, it stops its work by itself. When
//!   another worker has seen the same renewal for too long, it ends the lease by replacing exactly this renewal. The
//!   replacement fails if the first worker has renewed in the meantime. Therefore a worker that renews keeps its lease.
//! - A *question* asks the owner of a task to read the log of the task immediately.

mod accept;
mod accepted_messages;
mod admission;
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
mod remote_live_text;
mod remove_ended;
mod stop;
pub(crate) mod stop_delivery;
mod stop_step;
mod wake_up;
pub mod wake_up_conformance;
mod wake_up_loop;
mod worker;

pub use admission::AdmissionLimits;
pub use dead_letter::DeadLetter;
pub use dead_letter_retry::DeadLetterRetryError;
pub use lease::WorkerInfo;
pub use link::{
    AskedQuestion, ClusterLink, HeldWakeUp, LinkEntry, LinkFuture, PutError, WakeUpQueue,
};
pub use memory_link::MemoryLink;
pub use node::{ClusterOptions, LeaseChange, LeaseHandler, RenewalHandler};
pub use stop_delivery::StopDelivery;

pub(crate) use node::ClusterNode;
pub(crate) use remote_live_text::RemoteLiveText;
