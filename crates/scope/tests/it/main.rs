//! Tests of scopes through their public interface. The clock is paused where time matters.

mod ladder;
mod launches;
mod nested;
mod receipts;
mod runtime_gone;
mod shared;
mod together;
mod tree;

use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{RootOptions, Scope, StopRequest, WorkSpec};

/// A root scope on the current runtime.
fn root() -> Scope {
    Scope::root("test", RootOptions::single_runtime())
}

fn future(name: &str) -> WorkSpec {
    WorkSpec::new(ItemKind::Future, name)
}

fn by_user() -> StopRequest {
    StopRequest::new(Extent::Process, Cause::new(CauseKind::User))
}

const GRACE: Duration = allstop_scope::GRACE_DEFAULT;

/// Waits until the spawned work has been polled once. If a stop came before the first poll, the work would end as not
/// begun.
async fn begun() {
    tokio::task::yield_now().await;
}
