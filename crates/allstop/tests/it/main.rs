//! Tests of the facade, through its public names only.

mod answers;
mod examples;
mod functions;
mod outside;
mod processes;
mod providers;
mod sessions;
mod stops;

use std::time::Duration;

use allstop::prelude::*;

/// Arguments of a tool that needs none.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Longer than any test, so that a missing stop fails the test.
const FOREVER: Duration = Duration::from_hours(1);

/// A model that calls the tool `work` once, and then answers `done`.
fn calls_work() -> impl Model {
    model::from_fn("test", async |request: ModelRequest| {
        Ok(match request.tool_results() {
            0 => Reply::text("").call("work", serde_json::json!({})),
            _ => "done".into(),
        })
    })
}

/// A scope whose stops use force early.
fn impatient() -> Scope {
    Scope::root(
        "test",
        RootOptions::for_any_runtime().grace(Duration::from_millis(50)),
    )
}

/// Waits for the start of the first tool call.
async fn first_call(run: &Run) -> CallId {
    run.events()
        .next_call()
        .await
        .expect("the run calls a tool")
}
