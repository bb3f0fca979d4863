//! Detects loops of tool calls. A run is a sequence of turns of one agent. Each run has a separate detector, so two
//! runs share no state.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::counted::counted;
use crate::message::{Arguments, ToolCall};

/// Limits at which a run counts as a loop. `None` disables a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopLimits {
    /// Identical calls (name and arguments) in a row.
    pub repeats_max: Option<u32>,
    /// Rounds of two alternating calls.
    pub ping_pongs_max: Option<u32>,
    /// Calls of one tool with any arguments.
    pub calls_per_tool_max: Option<u32>,
}

impl Default for LoopLimits {
    /// - Five identical calls in a row: a call may be repeated to poll for a result, but not four times.
    /// - Four rounds of two alternating calls: edit, test, edit, test with identical arguments changes nothing.
    /// - 500 calls of one tool: more than a legitimate search through a large repository needs.
    fn default() -> Self {
        Self {
            repeats_max: Some(5),
            ping_pongs_max: Some(4),
            calls_per_tool_max: Some(500),
        }
    }
}

impl LoopLimits {
    /// Sets the number of identical calls in a row.
    #[must_use]
    pub fn repeats_max(mut self, repeats_max: impl Into<Option<u32>>) -> Self {
        self.repeats_max = repeats_max.into();
        self
    }

    /// Sets the number of rounds of two alternating calls.
    #[must_use]
    pub fn ping_pongs_max(mut self, ping_pongs_max: impl Into<Option<u32>>) -> Self {
        self.ping_pongs_max = ping_pongs_max.into();
        self
    }

    /// Sets the number of calls of one tool.
    #[must_use]
    pub fn calls_per_tool_max(mut self, calls_per_tool_max: impl Into<Option<u32>>) -> Self {
        self.calls_per_tool_max = calls_per_tool_max.into();
        self
    }
}

/// A detected loop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DetectedLoop {
    /// Identical calls in a row.
    #[error("{tool} was called {} in a row with the same arguments", counted((*times).into(), "time", "times"))]
    Repeat {
        /// Name of the tool.
        tool: Arc<str>,
        /// Number of calls.
        times: u32,
    },
    /// Two alternating calls.
    #[error(
        "{first} and {second} were called in turn {} with the same arguments",
        counted((*times).into(), "time", "times")
    )]
    PingPong {
        /// Tool of the first call.
        first: Arc<str>,
        /// Tool of the second call.
        second: Arc<str>,
        /// Number of rounds.
        times: u32,
    },
    /// Too many calls of one tool.
    #[error("{tool} was called {}", counted((*times).into(), "time", "times"))]
    Flood {
        /// Name of the tool.
        tool: Arc<str>,
        /// Number of calls.
        times: u32,
    },
}

/// Detects loops in the calls of one run.
#[derive(Debug, Default)]
pub struct LoopDetector {
    limits: LoopLimits,
    /// The last call, as fingerprint and tool name. The next field contains the call before the last call.
    last: Option<(u64, Arc<str>)>,
    before_last: Option<(u64, Arc<str>)>,
    /// Number of identical calls in a row, up to the last call.
    repeats: u32,
    /// Number of consecutive calls that each differ from the previous call and equal the call before the previous one.
    alternations: u32,
    per_tool: HashMap<Arc<str>, u32>,
}

impl LoopDetector {
    /// Creates a detector that has not observed any call.
    pub fn new(limits: LoopLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Records a call before it runs. If the call completes a loop, returns the loop.
    pub fn observe(&mut self, call: &ToolCall) -> Option<DetectedLoop> {
        let print = fingerprint(call);
        let is = |seen: &Option<(u64, Arc<str>)>| seen.as_ref().is_some_and(|(p, _)| *p == print);
        let (repeats_last, repeats_one_before) = (is(&self.last), is(&self.before_last));
        self.repeats = if repeats_last { self.repeats + 1 } else { 1 };
        self.alternations = if repeats_one_before && !repeats_last {
            self.alternations + 1
        } else {
            0
        };
        self.before_last = self.last.replace((print, Arc::clone(&call.name)));
        let of_tool = self.per_tool.entry(Arc::clone(&call.name)).or_default();
        *of_tool += 1;
        let of_tool = *of_tool;
        self.found(&call.name, of_tool)
    }

    fn found(&self, tool: &Arc<str>, of_tool: u32) -> Option<DetectedLoop> {
        let reached = |limit: Option<u32>, count: u32| limit.is_some_and(|limit| count >= limit);
        if reached(self.limits.repeats_max, self.repeats) {
            return Some(DetectedLoop::Repeat {
                tool: Arc::clone(tool),
                times: self.repeats,
            });
        }
        // After the calls A B A B, `alternations` is 2: the field counts the third and the fourth call. The four calls
        // make two rounds.
        let rounds = self.alternations / 2 + 1;
        if self.alternations >= 2
            && self.alternations.is_multiple_of(2)
            && reached(self.limits.ping_pongs_max, rounds)
            && let Some((_, first)) = &self.before_last
        {
            let (first, second) = (Arc::clone(first), Arc::clone(tool));
            return Some(DetectedLoop::PingPong {
                first,
                second,
                times: rounds,
            });
        }
        reached(self.limits.calls_per_tool_max, of_tool).then(|| DetectedLoop::Flood {
            tool: Arc::clone(tool),
            times: of_tool,
        })
    }
}

/// Hash of name and arguments. Two different calls are likely to have the same hash only after about 2³² different
/// calls.
fn fingerprint(call: &ToolCall) -> u64 {
    let mut hasher = DefaultHasher::new();
    call.name.hash(&mut hasher);
    match &call.arguments {
        Arguments::Json(value) => value.hash(&mut hasher),
        Arguments::Malformed(text) => text.hash(&mut hasher),
    }
    hasher.finish()
}
