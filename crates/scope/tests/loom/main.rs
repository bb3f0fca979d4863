//! Models of the scope's own synchronisation: every interleaving of a few threads is tried.
//!
//! The modules below are the crate's own source files, not copies; only what they stand on is exchanged. `sync` gives
//! them primitives that loom sees, and a process that can be asked and killed without being one. Tokens,
//! wake-ups and answers are doubles that keep the contract of tokio's, and time passes as fast as the scheduler likes:
//! a grace of zero and every round of force may be over before any other thread has moved.
//!
//! References are counted by the standard library, which loom does not see. What depends on a count, a child leaving its
//! parent, is done under the parent's lock, which it does see.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    unfulfilled_lint_expectations,
    clippy::unused_self,
    reason = "included files are used in part and checked where they belong; doubles keep their originals' shape"
)]

#[path = "../../src/cell/mod.rs"]
mod cell;
#[path = "../../src/child_scope.rs"]
mod child_scope;
#[path = "../../src/collect.rs"]
mod collect;
#[path = "../../src/env.rs"]
mod env;
#[path = "../../src/gate.rs"]
mod gate;
#[path = "../../src/registration.rs"]
mod registration;
#[path = "../../src/scope.rs"]
mod scope;
#[path = "../../src/stop/mod.rs"]
mod stop;
#[path = "../../src/work.rs"]
mod work;
// What `allstop_core::decision` takes from its crate.
use allstop_core::cause;

mod sync;

mod models;

pub use env::FORCE_MAX;
