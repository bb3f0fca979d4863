// A test that a tool is safe to stop: the test kit stops one call at every point, in every way. In a test, write only
// the line with `assert_stop_safe!`.

use std::time::Duration;

use allstop::prelude::*;
use allstop_testkit::{StopSafe, assert_stop_safe};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Download {
    seconds: u64,
}

/// Ends as soon as a stop asks it to.
fn download() -> impl Tool {
    tool(
        "download",
        "Downloads a file",
        async |file: Download, cx| {
            let transfer = tokio::time::sleep(Duration::from_secs(file.seconds));
            cx.unless_stopped(transfer).await?;
            Ok("downloaded")
        },
    )
}

/// Ignores each stop, so a stop must use force.
fn deaf() -> impl Tool {
    tool("deaf", "Waits", async |file: Download, _cx| {
        tokio::time::sleep(Duration::from_secs(file.seconds)).await;
        Ok("done")
    })
}

#[expect(clippy::unnecessary_wraps, reason = "all examples have one signature")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    assert_stop_safe!(download(), {"seconds": 10});
    println!("download: clean");

    let report = StopSafe::new(|_stage| deaf(), json!({"seconds": 10})).explore();
    println!("deaf: caught by {}", report.caught_by().join(", "));
    Ok(())
}
