//! Repeats a check until a fact about other processes is true.

use std::time::{Duration, Instant};

use crate::error::CliError;

/// Interval between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Calls `look` until it returns a value. Returns the value and the elapsed time.
pub(super) async fn wait_for<T>(
    fact: &str,
    max: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> Result<(T, Duration), CliError> {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return Ok((found, began.elapsed()));
        }
        if began.elapsed() > max {
            let seconds = max.as_secs();
            let text = format!("the demo failed: not seen within {seconds} s: {fact}");
            return Err(CliError::failure(text));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
