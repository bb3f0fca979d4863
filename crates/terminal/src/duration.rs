//! Durations in the status line.

use std::time::Duration;

use allstop_core::elapsed::duration;

/// Formats a duration like [`duration`], in whole seconds: the text changes once a second.
pub(super) fn whole_seconds(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => duration(Duration::from_secs(seconds)),
    }
}
