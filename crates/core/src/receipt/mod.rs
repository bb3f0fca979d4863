//! The answer to a stop: what stopped, what did not, and how that is known.
//!
//! Invariants, held by the constructors:
//! 1. An item that is `stopped` has `how`, `after_ms` and its [`Evidence`].
//! 2. `quiet` is true exactly when no item of the extent is `still_running`, `unreachable` or `refused`. An engine of the
//!    extent that has not acknowledged the stop is such an item ([`ItemKind::Engine`]).
//! 3. `cancel_observed` is true exactly when the stop was carried out and no item of the extent is `still_running` or
//!    `unreachable`. It is computed from the items, never set.
//! 4. While an engine of the extent has not acknowledged, `conversation` is `unknown`: its ending is not written yet, as
//!    far as anybody can tell.

mod item;
mod parts;
mod words;

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::extent::Extent;
use crate::ids::StopId;
use crate::time::Timestamp;
use crate::usage::Usage;

pub use item::{Evidence, ItemState, Millis, ReceiptItem};
pub use words::{Containment, How, ItemKind, Verified, Why};

/// The version of the receipt's form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReceiptSchema {
    /// The first.
    #[default]
    #[serde(rename = "allstop.receipt/1")]
    V1,
}

/// Effect of a stop on the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConversationEffect {
    /// It equals what it was.
    #[default]
    Unchanged,
    /// The policy `keep`: the user's message, the completed steps and a marker were committed as one.
    KeptCompletedSteps,
    /// The write of the turn's ending is not confirmed: the log tells later.
    Unknown,
}

/// The answer of a stop that found nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopOutcome {
    /// It had ended before.
    AlreadyEnded,
    /// There is no such thing.
    NotFound,
}

/// Request of a stop: its target, extent, cause and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StopRequest {
    /// The id of the stop.
    pub stop_id: StopId,
    /// The target: `session/01J…/turn/7`.
    pub target: Arc<str>,
    /// Its extent.
    pub extent: Extent,
    /// The cause.
    pub cause: Cause,
    /// When it was accepted.
    pub requested_at: Timestamp,
}

/// The answer to a stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[must_use = "a receipt says what still runs"]
pub struct Receipt {
    schema: ReceiptSchema,
    #[serde(flatten)]
    request: StopRequest,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    preview: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<StopOutcome>,
    quiet: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quiet_after_ms: Option<Millis>,
    cancel_observed: bool,
    // Shared: a receipt is copied for its turn, its log and whoever asked, and its items never change.
    items: Arc<[ReceiptItem]>,
    conversation: ConversationEffect,
    usage: Usage,
}

/// Findings of whoever carried out a stop.
#[derive(Debug, Clone, Default)]
pub struct StopFindings {
    /// Every item of the extent, and those outside it that are worth naming.
    pub items: Arc<[ReceiptItem]>,
    /// From the request to the last ending.
    pub elapsed: Duration,
}

impl Receipt {
    /// Makes the receipt of a stop that was carried out. `quiet` and `cancel_observed` follow from the items.
    pub fn of_stop(request: StopRequest, findings: StopFindings) -> Self {
        let (mut quiet, mut something_left, mut engine_left) = (true, false, false);
        // Once: a receipt may have ten thousand items.
        for item in &*findings.items {
            if !item.state.breaks_quiet() || item.state.is_outside_extent() {
                continue;
            }
            quiet = false;
            engine_left |= item.kind == ItemKind::Engine;
            something_left |= matches!(
                item.state,
                ItemState::StillRunning { .. } | ItemState::Unreachable { .. }
            );
        }
        Self {
            schema: ReceiptSchema::V1,
            request,
            preview: false,
            outcome: None,
            quiet,
            quiet_after_ms: quiet.then(|| findings.elapsed.into()),
            cancel_observed: !something_left,
            items: findings.items,
            conversation: if engine_left {
                ConversationEffect::Unknown
            } else {
                ConversationEffect::Unchanged
            },
            usage: Usage::default(),
        }
    }

    /// The answer of a stop that found nothing to do. Nothing was observed; it is quiet.
    pub fn of_nothing(request: StopRequest, outcome: StopOutcome) -> Self {
        Self::of_rest(request, outcome, Arc::default())
    }

    /// The answer of a stop that came too late, with what still runs of its extent all the same: the receipt is quiet
    /// only if nothing does.
    pub fn of_ended(request: StopRequest, still_running: Vec<ReceiptItem>) -> Self {
        Self::of_rest(request, StopOutcome::AlreadyEnded, still_running.into())
    }

    fn of_rest(request: StopRequest, outcome: StopOutcome, items: Arc<[ReceiptItem]>) -> Self {
        let findings = StopFindings {
            items,
            ..StopFindings::default()
        };
        Self {
            outcome: Some(outcome),
            quiet_after_ms: None,
            cancel_observed: false,
            ..Self::of_stop(request, findings)
        }
    }

    /// Receipt of a dry run: every item of the extent as it runs now.
    pub fn of_preview(request: StopRequest, items: Vec<ReceiptItem>) -> Self {
        Self {
            preview: true,
            cancel_observed: false,
            ..Self::of_stop(
                request,
                StopFindings {
                    items: items.into(),
                    ..StopFindings::default()
                },
            )
        }
    }

    /// The same, with what the stop left of the conversation.
    pub fn with_conversation(mut self, conversation: ConversationEffect) -> Self {
        self.conversation = conversation;
        self
    }

    /// The same, with the metered usage of the extent.
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// The same, with work outside the extent named as still running.
    pub fn with_bystanders(mut self, bystanders: impl IntoIterator<Item = ReceiptItem>) -> Self {
        let mut outside = bystanders
            .into_iter()
            .map(|mut item| {
                item.state = ItemState::StillRunning {
                    why: Why::OutsideExtent,
                };
                item
            })
            .peekable();
        if outside.peek().is_some() {
            self.items = self.items.iter().cloned().chain(outside).collect();
        }
        self
    }

    /// The request.
    pub fn request(&self) -> &StopRequest {
        &self.request
    }

    /// The id of the stop.
    pub fn stop_id(&self) -> &StopId {
        &self.request.stop_id
    }

    /// The cause.
    pub fn cause(&self) -> &Cause {
        &self.request.cause
    }

    /// Set where the stop found nothing to do.
    pub fn outcome(&self) -> Option<StopOutcome> {
        self.outcome
    }

    /// Whether this only says what a stop would find.
    pub fn is_preview(&self) -> bool {
        self.preview
    }

    /// Whether nothing in the extent runs any more, verified for each item.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    /// Milliseconds from the request to quiet; `None` where it is not quiet.
    pub fn quiet_after_ms(&self) -> Option<Millis> {
        self.quiet_after_ms
    }

    /// Whether the engine acknowledged and nothing of the extent is left.
    pub fn cancel_observed(&self) -> bool {
        self.cancel_observed
    }

    /// Every item.
    pub fn items(&self) -> &[ReceiptItem] {
        &self.items
    }

    /// Effect on the conversation.
    pub fn conversation(&self) -> ConversationEffect {
        self.conversation
    }

    /// The metered usage of the extent.
    pub fn usage(&self) -> Usage {
        self.usage
    }
}
