//! Models of the synchronisation of scopes. loom tries every interleaving of a few threads.
//!
//! The modules below are the crate's own source files, not copies. Only their primitives are replaced. `sync` provides
//! primitives that loom observes, and a simulated process that can be asked and killed. Tokens, wake-ups and answers
//! are simple replacements that keep the contract of tokio's types. The scheduler chooses how fast time passes: a grace
//! of zero and every round of force may be over before any other thread has run.
//!
//! The standard library counts references, and loom does not observe these counts. Only one action depends on such a
//! count: a child scope leaves its parent after the last handle of the child is dropped. This action happens under the
//! parent's lock, which loom observes.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    unfulfilled_lint_expectations,
    clippy::unused_self,
    reason = "included files are used in part and checked where they belong; doubles keep their originals' shape"
)]

#[path = "../../src/barrier.rs"]
mod barrier;
#[path = "../../src/child_scope.rs"]
mod child_scope;
#[path = "../../src/collect.rs"]
mod collect;
#[path = "../../src/env.rs"]
mod env;
#[path = "../../src/group/mod.rs"]
mod group;
#[path = "../../src/registration.rs"]
mod registration;
#[path = "../../src/scope.rs"]
mod scope;
#[path = "../../src/stop/mod.rs"]
mod stop;
#[path = "../../src/user_code.rs"]
mod user_code;
#[path = "../../src/work.rs"]
mod work;
// Types that `allstop_core::decision` imports from its own crate.
use allstop_core::cause;

mod sync;

mod models;

pub use env::FORCE_MAX;
