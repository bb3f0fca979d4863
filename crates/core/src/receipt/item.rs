//! One item of a receipt, and what became of it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::words::{Containment, How, ItemKind, Verified, Why};
use crate::message::Effect;
use crate::process::ProcessIdentity;

/// Milliseconds with one decimal, as receipts give them.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Millis(f64);

impl Millis {
    /// The number.
    pub fn as_f64(self) -> f64 {
        self.0
    }
}

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self((duration.as_secs_f64() * 10_000.0).round() / 10.0)
    }
}

/// Evidence of an ending: verified from outside, acknowledged by the work at a named checkpoint, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verified: Option<Verified>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    observed_at: Option<Cow<'static, str>>,
}

impl Evidence {
    /// Seen from outside.
    pub fn verified(way: Verified) -> Self {
        Self {
            verified: Some(way),
            observed_at: None,
        }
    }

    /// Acknowledged by the work at this checkpoint.
    pub fn observed_at(checkpoint: impl Into<Cow<'static, str>>) -> Self {
        Self {
            verified: None,
            observed_at: Some(checkpoint.into()),
        }
    }

    /// The same, also acknowledged at this checkpoint.
    #[must_use]
    pub fn and_observed_at(mut self, checkpoint: impl Into<Cow<'static, str>>) -> Self {
        self.observed_at = Some(checkpoint.into());
        self
    }

    /// The outside proof, if there is one.
    pub fn proof(&self) -> Option<Verified> {
        self.verified
    }

    /// The checkpoint, if the work acknowledged.
    pub fn checkpoint(&self) -> Option<&str> {
        self.observed_at.as_deref()
    }
}

/// State of an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ItemState {
    /// It ended by itself before the stop reached it.
    Finished {
        /// Milliseconds from the request to its end; none where there was no request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<Millis>,
    },
    /// It was ended, and that is known.
    Stopped {
        /// By what.
        how: How,
        /// The evidence.
        #[serde(flatten)]
        evidence: Evidence,
        /// Milliseconds from the request to its end.
        after_ms: Millis,
    },
    /// Our side has verifiably ended; the outcome of its effect is not known.
    Unknown {
        /// By what our side was ended.
        how: How,
        /// Milliseconds from the request to the end of our side.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<Millis>,
    },
    /// It runs.
    StillRunning {
        /// Reason that it was not, or could not be, ended.
        why: Why,
    },
    /// A remote that was asked and may still work.
    Unreachable {
        /// The missing confirmation.
        why: Why,
    },
    /// The one who holds it said no.
    Refused {
        /// The owner's reason.
        why: Why,
    },
}

impl ItemState {
    /// Counts the time of its end from an earlier request.
    pub(super) fn shift(&mut self, by: Duration) {
        let after_ms = match self {
            Self::Finished { after_ms } | Self::Unknown { after_ms, .. } => after_ms.as_mut(),
            Self::Stopped { after_ms, .. } => Some(after_ms),
            Self::StillRunning { .. } | Self::Unreachable { .. } | Self::Refused { .. } => None,
        };
        if let Some(after_ms) = after_ms {
            let own = Duration::from_secs_f64(after_ms.as_f64() / 1e3);
            *after_ms = (own + by).into();
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

    /// Whether this item keeps a receipt from being quiet, if it is in the extent.
    pub fn breaks_quiet(&self) -> bool {
        matches!(
            self,
            Self::StillRunning { .. } | Self::Unreachable { .. } | Self::Refused { .. }
        )
    }

    pub(super) fn is_outside_extent(&self) -> bool {
        matches!(
            self,
            Self::StillRunning {
                why: Why::OutsideExtent
            }
        )
    }
}

/// One piece of work in a receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptItem {
    /// Its kind.
    pub kind: ItemKind,
    /// Its id, unique in the receipt. A call of a sub-agent is named by the calls that it lies in, `call_1/call_2`.
    pub id: Arc<str>,
    /// Its name, for people.
    pub name: Arc<str>,
    /// Its state.
    #[serde(flatten)]
    pub state: ItemState,
    /// Effect of repeating it, where that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// The level of containment, for child processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<Containment>,
    /// Processes that are known to run still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessIdentity>,
    /// Tokens that came in after the stop was accepted, for model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_received_after_stop: Option<u64>,
    /// Note on what a reader should know or do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Cow<'static, str>>,
}

impl ReceiptItem {
    /// An item with nothing but its state.
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
            state,
            effect: None,
            containment: None,
            processes: Vec::new(),
            tokens_received_after_stop: None,
            note: None,
        }
    }
}
