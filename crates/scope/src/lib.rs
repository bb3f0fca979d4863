//! Scopes contain work that can be stopped at any time. Each stop reports its result in a verified receipt.
//!
//! Any tokio program can use this crate alone: create a [`Scope::root`], spawn in it, stop it, read the receipt.
//!
//! ```
//! use allstop_core::{Cause, CauseKind, Extent};
//! use allstop_core::receipt::ItemKind;
//! use allstop_scope::{RootOptions, Scope, StopRequest, WorkSpec};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let scope = Scope::root("jobs", RootOptions::current());
//! scope
//!     .spawn(WorkSpec::new(ItemKind::Future, "poller"), |cx| async move {
//!         cx.stopped_at("idle").await;
//!     })
//!     .expect("nothing is stopped yet");
//! let receipt = scope.stop(StopRequest::new(Extent::Process, Cause::new(CauseKind::User))).await;
//! assert!(receipt.quiet());
//! assert_eq!(receipt.items()[0].state.as_str(), "stopped");
//! # }
//! ```
//!
//! A stop has four steps, which are called its ladder. **Ask**: cancellation tokens are cancelled, processes get
//! SIGTERM, and remotes get a request. **Grace**: the stop waits. **Force**: futures are dropped, and processes get
//! SIGKILL. **Account**: the receipt lists the work that has ended and the work that still runs. The four steps never
//! take longer than the grace and [`FORCE_MAX`] together. The receipt never claims more than was verified.
//!
//! The effect of force depends on the kind of work. Futures ([`Scope::spawn`]) are dropped. Child processes
//! ([`Scope::spawn_process`]) are killed with all their descendants. Threads ([`Scope::spawn_blocking`]) cannot be
//! forced; they are counted and listed. Calls to other machines ([`Scope::register_remote`]) can only be asked.

// Layers, lowest first: sync, signal, control, user_code, env, barrier and work; group; collect and registration; scope;
// stop; child_scope, spawn and child_process. A file imports only from its own layer and from lower layers.
mod barrier;
mod child_process;
mod child_scope;
mod collect;
mod control;
mod env;
mod group;
mod permission_wait;
mod registration;
mod scope;
mod signal;
mod spawn;
mod stop;
mod sync;
mod timeout;
mod user_code;
mod work;

pub use barrier::NotStarted;
pub use child_process::{Process, SpawnProcessError};
pub use child_scope::{Deadline, ScopeOptions};
pub use control::TreeRuntime;
pub use env::{CreateRootError, FORCE_MAX, GRACE_DEFAULT, RootOptions, instant_after};
pub use group::Placement;
pub use permission_wait::PermissionWait;
pub use registration::Registration;
pub use scope::{EngineGuard, Scope};
pub use spawn::{WorkCx, WorkHandle, WorkLost};
pub use stop::{AcceptedStop, PartReceipt, Stop, StopRequest};
pub use user_code::catch_panic;
pub use work::{Details, Ending, WorkSpec};
