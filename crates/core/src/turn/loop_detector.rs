//! Notices that a run goes in circles. One detector belongs to one run: nothing is shared between users.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::message::{Arguments, ToolCall};

/// When a run counts as going in circles. `None` switches a rule off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopLimits {
    /// The same call, name and arguments, so many times in a row.
    pub repeats_max: Option<u32>,
    /// Two calls in turn, so many times each.
    pub ping_pongs_max: Option<u32>,
    /// Calls of one tool, whatever the arguments.
    pub calls_per_tool_max: Option<u32>,
}

impl Default for LoopLimits {
    /// Five in a row: a poll or a retry twice over is work, a fifth identical one in a row is not. Four rounds of
    /// ping-pong: edit, test, edit, test with identical arguments changes nothing. 500 of one tool: more than an honest
    /// search through a large repository takes.
    fn default() -> Self {
        Self {
            repeats_max: Some(5),
            ping_pongs_max: Some(4),
            calls_per_tool_max: Some(500),
        }
    }
}

/// The pattern that was noticed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoopFound {
    /// The same call in a row.
    #[error("{tool} was called {times} times in a row with the same arguments")]
    Repeat {
        /// The tool.
        tool: Arc<str>,
        /// Number of times.
        times: u32,
    },
    /// Two calls in turn.
    #[error("{first} and {second} were called in turn {times} times with the same arguments")]
    PingPong {
        /// The one.
        first: Arc<str>,
        /// The other.
        second: Arc<str>,
        /// Number of times of each.
        times: u32,
    },
    /// Too many calls of one tool.
    #[error("{tool} was called {times} times")]
    Flood {
        /// The tool.
        tool: Arc<str>,
        /// Number of times.
        times: u32,
    },
}

/// Counts the calls of one run.
#[derive(Debug, Default)]
pub struct LoopDetector {
    limits: LoopLimits,
    /// The last call and the one before it, as fingerprints.
    last: Option<(u64, Arc<str>)>,
    before_last: Option<(u64, Arc<str>)>,
    /// Number of times that the last call came in a row.
    repeats: u32,
    /// For how many calls now each has equalled the one before the last, and not the last.
    alternations: u32,
    per_tool: HashMap<Arc<str>, u32>,
}

impl LoopDetector {
    /// A detector that has seen nothing.
    pub fn new(limits: LoopLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Takes note of a call before it runs, and says if it completes a loop.
    pub fn observe(&mut self, call: &ToolCall) -> Option<LoopFound> {
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

    fn found(&self, tool: &Arc<str>, of_tool: u32) -> Option<LoopFound> {
        let reached = |limit: Option<u32>, count: u32| limit.is_some_and(|limit| count >= limit);
        if reached(self.limits.repeats_max, self.repeats) {
            return Some(LoopFound::Repeat {
                tool: Arc::clone(tool),
                times: self.repeats,
            });
        }
        // A B A B: the third and the fourth call alternate, which makes two rounds.
        let rounds = self.alternations / 2 + 1;
        if self.alternations >= 2
            && self.alternations.is_multiple_of(2)
            && reached(self.limits.ping_pongs_max, rounds)
            && let Some((_, first)) = &self.before_last
        {
            let (first, second) = (Arc::clone(first), Arc::clone(tool));
            return Some(LoopFound::PingPong {
                first,
                second,
                times: rounds,
            });
        }
        reached(self.limits.calls_per_tool_max, of_tool).then(|| LoopFound::Flood {
            tool: Arc::clone(tool),
            times: of_tool,
        })
    }
}

/// Name and arguments as one number. A collision would need 2³² different calls in a row to be likely.
fn fingerprint(call: &ToolCall) -> u64 {
    let mut hasher = DefaultHasher::new();
    call.name.hash(&mut hasher);
    match &call.arguments {
        Arguments::Json(value) => value.hash(&mut hasher),
        Arguments::Malformed(text) => text.hash(&mut hasher),
    }
    hasher.finish()
}
