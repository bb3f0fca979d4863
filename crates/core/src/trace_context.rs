//! W3C trace context of a message: the position in the trace of its sender.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Length of a `traceparent` of version 00 (W3C Trace Context, section 3.2).
const TRACEPARENT_LEN: usize = 55;

/// Positions of the dashes in a `traceparent`.
const DASHES: [usize; 3] = [2, 35, 52];

/// Maximum length of a `tracestate`: the length that every part of a trace must propagate (W3C Trace Context, section
/// 3.3.1.5).
const TRACESTATE_BYTES_MAX: usize = 512;

/// Maximum length of a `baggage` (W3C Baggage, section 3.3.2).
const BAGGAGE_BYTES_MAX: usize = 8192;

/// Names of the optional headers, as lines of the text.
const TRACESTATE: &str = "tracestate: ";
const BAGGAGE: &str = "baggage: ";

/// Trace context of a message: the headers `traceparent`, `tracestate` and `baggage`. Records contain it as one text: the
/// `traceparent`, then a line for each other header.
///
/// ```
/// use allstop_core::TraceContext;
///
/// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let trace = TraceContext::new(parent).expect("valid").with_tracestate("vendor=1");
/// assert_eq!(trace.traceparent(), parent);
/// assert_eq!(trace.tracestate(), Some("vendor=1"));
/// assert_eq!(TraceContext::new("00-0af7"), None);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TraceContext(Arc<str>);

impl TraceContext {
    /// Trace context with this `traceparent`; `None` unless it has the format of version 00.
    pub fn new(traceparent: &str) -> Option<Self> {
        let has_format = traceparent.len() == TRACEPARENT_LEN
            && traceparent.bytes().enumerate().all(|(at, byte)| {
                if DASHES.contains(&at) {
                    byte == b'-'
                } else {
                    byte.is_ascii_hexdigit()
                }
            });
        has_format.then(|| Self(traceparent.into()))
    }

    /// Adds the header `tracestate`. Omits an empty value, a value with control characters, and a value longer than 512
    /// bytes.
    #[must_use]
    pub fn with_tracestate(self, value: &str) -> Self {
        self.with(TRACESTATE, value, TRACESTATE_BYTES_MAX)
    }

    /// Adds the header `baggage`. Omits an empty value, a value with control characters, and a value longer than 8,192
    /// bytes.
    #[must_use]
    pub fn with_baggage(self, value: &str) -> Self {
        self.with(BAGGAGE, value, BAGGAGE_BYTES_MAX)
    }

    fn with(self, header: &str, value: &str, bytes_max: usize) -> Self {
        let value = value.trim();
        let is_valid =
            !value.is_empty() && value.len() <= bytes_max && !value.contains(char::is_control);
        if !is_valid || self.header(header).is_some() {
            return self;
        }
        Self(format!("{}\n{header}{value}", self.0).into())
    }

    /// The header `traceparent`.
    pub fn traceparent(&self) -> &str {
        self.0.lines().next().unwrap_or_default()
    }

    /// The header `tracestate`, with the data of other tracing systems.
    pub fn tracestate(&self) -> Option<&str> {
        self.header(TRACESTATE)
    }

    /// The header `baggage`, with values of the sender for all parts of the trace.
    pub fn baggage(&self) -> Option<&str> {
        self.header(BAGGAGE)
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines().skip(1);
        lines.find_map(|line| line.strip_prefix(name))
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TraceContext").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn one_text_has_all_headers() {
        let trace = TraceContext::new(PARENT).unwrap();
        let trace = trace.with_baggage("user=7,b=2").with_tracestate("a=1");
        let json = serde_json::to_string(&trace).unwrap();
        let read: TraceContext = serde_json::from_str(&json).unwrap();
        assert_eq!(read, trace);
        assert_eq!(read.traceparent(), PARENT);
        assert_eq!(read.tracestate(), Some("a=1"));
        assert_eq!(read.baggage(), Some("user=7,b=2"));
    }

    #[test]
    fn record_of_an_older_version_is_a_traceparent() {
        let read: TraceContext = serde_json::from_str(&format!("\"{PARENT}\"")).unwrap();
        assert_eq!(Some(read), TraceContext::new(PARENT));
    }

    #[test]
    fn header_with_another_line_or_too_long_is_omitted() {
        let trace = TraceContext::new(PARENT).unwrap();
        let trace = trace.with_tracestate("a=1\nbaggage: x=1");
        let trace = trace.with_tracestate(&"a".repeat(TRACESTATE_BYTES_MAX + 1));
        let trace = trace.with_baggage(" ");
        assert_eq!((trace.tracestate(), trace.baggage()), (None, None));
    }

    #[test]
    fn text_without_the_format_is_no_traceparent() {
        let moved = PARENT
            .replacen("b7ad-", "b7-ad", 1)
            .replacen("9c-b", "9-cb", 1);
        for wrong in ["", "00-trace", &PARENT[1..], &moved] {
            assert_eq!(TraceContext::new(wrong), None, "{wrong}");
        }
    }
}
