//! One item of a receipt, and its state. A receipt is the result of a stop. Each item describes one piece of work, such
//! as a tool call or a process.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::item_enums::{
    Containment, EndMethod, EndProof, ItemKind, MissedWork, NotStoppedReason, WaitReason,
};
use crate::message::Effect;
use crate::process::ProcessIdentity;

/// Milliseconds with one decimal place.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Millis(f64);

impl Millis {
    /// The number of milliseconds.
    pub fn as_f64(self) -> f64 {
        self.0
    }

    /// Converts the time since one stop request to the time since another stop request, which came `by_ms` milliseconds
    /// earlier. A negative result becomes 0.
    pub(super) fn shifted(self, by_ms: f64) -> Self {
        Self::rounded((self.0 + by_ms).max(0.0))
    }

    /// Rounds to one decimal place. A sum needs it too: 1.2 - 1.0 is 0.19999999999999996.
    fn rounded(ms: f64) -> Self {
        Self((ms * 10.0).round() / 10.0)
    }
}

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self::rounded(duration.as_secs_f64() * 1_000.0)
    }
}

/// Evidence that work ended: verified from outside, acknowledged by the work at a named checkpoint, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verified: Option<EndProof>,
    /// Work that this verification can miss; absent if it misses none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    may_miss: Option<MissedWork>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    observed_at: Option<Cow<'static, str>>,
}

impl Evidence {
    /// Evidence from outside the work.
    pub fn verified(way: EndProof) -> Self {
        Self {
            verified: Some(way),
            may_miss: way.may_miss(),
            observed_at: None,
        }
    }

    /// Acknowledgement by the work at this checkpoint.
    pub fn observed_at(checkpoint: impl Into<Cow<'static, str>>) -> Self {
        Self {
            verified: None,
            may_miss: None,
            observed_at: Some(checkpoint.into()),
        }
    }

    /// Adds an acknowledgement by the work at this checkpoint.
    #[must_use]
    pub fn and_observed_at(mut self, checkpoint: impl Into<Cow<'static, str>>) -> Self {
        self.observed_at = Some(checkpoint.into());
        self
    }

    /// The verification from outside; `None` if the work only acknowledged the stop.
    pub fn proof(&self) -> Option<EndProof> {
        self.verified
    }

    /// Work that the verification can miss; `None` if it misses none.
    pub fn may_miss(&self) -> Option<MissedWork> {
        self.may_miss
    }

    /// The checkpoint, if the work acknowledged the stop.
    pub fn checkpoint(&self) -> Option<&str> {
        self.observed_at.as_deref()
    }
}

/// State of an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ItemState {
    /// The work ended by itself before the stop reached it.
    Finished {
        /// Milliseconds from the request to the end of the work; absent if there was no request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<Millis>,
    },
    /// The stop ended the work, with evidence.
    Stopped {
        /// Method that ended it.
        how: EndMethod,
        /// The evidence.
        #[serde(flatten)]
        evidence: Evidence,
        /// Milliseconds from the request to its end.
        after_ms: Millis,
    },
    /// The local side has verifiably ended; the outcome of its effect is unknown.
    Unknown {
        /// Method that ended the local side.
        how: EndMethod,
        /// Milliseconds from the request to the end of the local side.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<Millis>,
    },
    /// The work still runs.
    StillRunning {
        /// Reason why the stop did not end the work.
        why: NotStoppedReason,
    },
    /// The work may still run: a remote system has not confirmed its stop, the processes are out of view, or a search for
    /// them did not finish.
    Unreachable {
        /// The missing confirmation.
        why: NotStoppedReason,
    },
    /// The owner of the work refused the stop.
    Refused {
        /// The owner's reason.
        why: NotStoppedReason,
    },
}

impl ItemState {
    /// Converts `after_ms` to the time since another stop request, which came `by_ms` milliseconds earlier. If `by_ms`
    /// is negative, the other request came later.
    pub(super) fn shift(&mut self, by_ms: f64) {
        let after_ms = match self {
            Self::Finished { after_ms } | Self::Unknown { after_ms, .. } => after_ms.as_mut(),
            Self::Stopped { after_ms, .. } => Some(after_ms),
            Self::StillRunning { .. } | Self::Unreachable { .. } | Self::Refused { .. } => None,
        };
        if let Some(after_ms) = after_ms {
            *after_ms = after_ms.shifted(by_ms);
        }
    }

    /// The word used in JSON and in text.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Finished { .. } => "finished",
            Self::Stopped { .. } => "stopped",
            Self::Unknown { .. } => "unknown",
            Self::StillRunning { .. } => "still_running",
            Self::Unreachable { .. } => "unreachable",
            Self::Refused { .. } => "refused",
        }
    }

    /// True if this state means that the work still runs, may still run, or refused the stop. A receipt with such an
    /// item in the extent of its stop is not quiet.
    pub fn breaks_quiet(&self) -> bool {
        matches!(
            self,
            Self::StillRunning { .. } | Self::Unreachable { .. } | Self::Refused { .. }
        )
    }

    /// True if the work is not in the extent of the stop.
    pub fn is_outside_extent(&self) -> bool {
        matches!(
            self,
            Self::StillRunning {
                why: NotStoppedReason::OutsideExtent
            }
        )
    }
}

/// One piece of work in a receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptItem {
    /// Kind of work.
    pub kind: ItemKind,
    /// Id, unique in the receipt. The id of a sub-agent's call is the path of calls to it: `call_1/call_2`.
    pub id: Arc<str>,
    /// Name for people: the tool of a call.
    pub name: Arc<str>,
    /// One line that describes the work of a call, for people, escaped for a terminal: the command line of a shell, the
    /// prompt of an agent, the file of an edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Arc<str>>,
    /// State after the stop.
    #[serde(flatten)]
    pub state: ItemState,
    /// In a dry run and in a list of running work: the event that the work waits for before its start. Such work has
    /// had no effect yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitReason>,
    /// Effect of repeating the work; absent if it does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Level of containment of child processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<Containment>,
    /// Processes that are known to be still running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessIdentity>,
    /// Tokens received after the stop was accepted, for model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_received_after_stop: Option<u64>,
    /// Advice for the reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Cow<'static, str>>,
}

impl ReceiptItem {
    /// The item in a list of running work that no stop has asked to end.
    #[must_use]
    pub fn not_asked(mut self) -> Self {
        if let ItemState::StillRunning { why } = &mut self.state
            && *why != NotStoppedReason::OutsideExtent
        {
            *why = NotStoppedReason::NotAsked;
        }
        self
    }

    /// Creates an item with these values. All optional fields are empty.
    pub fn new(
        kind: ItemKind,
        id: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        state: ItemState,
    ) -> Self {
        Self {
            kind,
            id: id.into(),
            name: name.into(),
            label: None,
            state,
            waits_for: None,
            effect: None,
            containment: None,
            processes: Vec::new(),
            tokens_received_after_stop: None,
            note: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: receipts contained `0.19999999999999996`.
    #[test]
    fn a_shifted_time_has_one_decimal_place() {
        let time = Millis::from(Duration::from_micros(1_200));
        assert_eq!(serde_json::to_string(&time.shifted(-1.0)).unwrap(), "0.2");
        assert_eq!(serde_json::to_string(&time.shifted(-2.0)).unwrap(), "0.0");
    }
}
