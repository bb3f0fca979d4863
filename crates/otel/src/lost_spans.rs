//! Report about spans that the collector did not get.

use std::fmt;

use allstop_core::counted::counted;

/// Spans that the collector did not accept. Its text is a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostSpans {
    /// Number of the spans.
    pub count: u64,
    /// URL of the collector.
    pub collector: String,
    /// Reason, such as the error of the HTTP client.
    pub why: String,
}

impl fmt::Display for LostSpans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = counted(self.count, "span was", "spans were");
        let Self { collector, why, .. } = self;
        write!(
            f,
            "traces are incomplete: {lost} not sent to {collector}: {why}"
        )
    }
}
