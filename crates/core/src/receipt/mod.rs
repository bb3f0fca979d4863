//! Receipt of a stop: the work that ended, the work that did not end, and the evidence. The extent of a stop is the
//! part of the running work that the stop covers. An engine is the task that drives a turn.
//!
//! Invariants, upheld by the constructors:
//! 1. An item in the state `stopped` has `how`, `after_ms` and its [`Evidence`].
//! 2. `quiet` is true exactly when no item of the extent is `still_running`, `unreachable` or `refused`. If an engine
//!    of the extent has not acknowledged the stop, the receipt has an item of the kind [`ItemKind::Engine`], which is
//!    `still_running`.
//! 3. `cancel_observed` is true exactly when the stop was carried out and no item of the extent is `still_running` or
//!    `unreachable`. It is computed from the items, never set.
//!    Exception to 2 and 3: after a crash of the process nothing was verified, so both are false.
//! 4. `conversation` is `unknown` as long as an engine of the extent has not acknowledged the stop.

mod item;
mod item_enums;
mod parts;
mod sentence;

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::{CRASH, Cause, CauseKind};
use crate::extent::Extent;
use crate::ids::StopId;
use crate::time::Timestamp;
use crate::usage::Usage;

pub use item::{Evidence, ItemState, Millis, ReceiptItem};
pub use item_enums::{
    Containment, EndMethod, EndProof, ItemKind, MissedWork, NotStoppedReason, WaitReason,
};

/// Version of the receipt's format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReceiptSchema {
    /// Version 1.
    #[default]
    #[serde(rename = "allstop.receipt/1")]
    V1,
}

/// Effect of a stop on the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConversationEffect {
    /// The conversation is unchanged.
    #[default]
    Unchanged,
    /// The policy `keep` committed the user's message, the completed steps and a marker together.
    KeptCompletedSteps,
    /// The write of the turn's ending is not confirmed. Read the log later.
    Unknown,
}

/// Outcome of a stop that found nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NothingToStop {
    /// The target had already ended, and none of its work runs.
    AlreadyEnded,
    /// The stop came too late to change the result of the target, but some of its work still runs or is out of reach.
    /// Example: the store has not confirmed the commit of a turn. The items list this work.
    Ending,
    /// The target does not exist.
    NotFound,
}

/// An accepted request: id, target, extent, cause and time of the stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StopInfo {
    /// Id of the stop.
    pub stop_id: StopId,
    /// Target, for example `session/01J…/turn/7`.
    pub target: Arc<str>,
    /// Extent of the stop.
    pub extent: Extent,
    /// Cause of the stop.
    pub cause: Cause,
    /// Time at which the request was accepted.
    pub requested_at: Timestamp,
}

impl StopInfo {
    /// Sort key of stops. The key also contains the id, so that every process sorts two stops of the same millisecond
    /// in the same order.
    pub fn order(&self) -> (Timestamp, &StopId) {
        (self.requested_at, &self.stop_id)
    }
}

/// Receipt of a stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[must_use = "a receipt says what still runs"]
pub struct Receipt {
    schema: ReceiptSchema,
    #[serde(flatten)]
    request: StopInfo,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    preview: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<NothingToStop>,
    /// Work that the search of the stop can miss, in addition to the items; absent if the search misses none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    may_miss: Option<MissedWork>,
    quiet: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quiet_after_ms: Option<Millis>,
    cancel_observed: bool,
    // Shared, because the items never change, and the log, the turn and the requester each hold a copy of the receipt.
    items: Arc<[ReceiptItem]>,
    conversation: ConversationEffect,
    usage: Usage,
}

/// Result of a stop that was carried out.
#[derive(Debug, Clone, Default)]
pub struct StopFindings {
    /// All items of the extent, and important items outside the extent.
    pub items: Arc<[ReceiptItem]>,
    /// Time from the request to the end of the last item.
    pub elapsed: Duration,
}

impl Receipt {
    /// Creates the receipt of a stop that was carried out. `quiet` and `cancel_observed` are computed from the items.
    pub fn of_stop(request: StopInfo, findings: StopFindings) -> Self {
        let (mut quiet, mut something_left, mut engine_left) = (true, false, false);
        // A single pass, because a receipt may have ten thousand items.
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
            may_miss: None,
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

    /// Creates the receipt of a turn whose process died. No stop was carried out and nothing was verified, so `quiet` and
    /// `cancel_observed` are false.
    pub fn of_crash(request: StopInfo, items: Arc<[ReceiptItem]>) -> Self {
        let findings = StopFindings {
            items,
            ..StopFindings::default()
        };
        Self {
            quiet: false,
            quiet_after_ms: None,
            cancel_observed: false,
            ..Self::of_stop(request, findings)
        }
    }

    /// Creates the receipt of a stop that found nothing to do. The receipt is quiet, and `cancel_observed` is false.
    pub fn empty(request: StopInfo, outcome: NothingToStop) -> Self {
        Self::nothing_stopped(request, outcome, Arc::default())
    }

    /// Creates the receipt of a stop whose target had already ended. `still_running` lists the work of the extent that
    /// still runs. If the list is empty, the receipt is quiet; otherwise the outcome is [`NothingToStop::Ending`].
    pub fn already_ended(request: StopInfo, still_running: Vec<ReceiptItem>) -> Self {
        Self::nothing_stopped(request, NothingToStop::AlreadyEnded, still_running.into())
    }

    fn nothing_stopped(
        request: StopInfo,
        outcome: NothingToStop,
        items: Arc<[ReceiptItem]>,
    ) -> Self {
        let findings = StopFindings {
            items,
            ..StopFindings::default()
        };
        let receipt = Self::of_stop(request, findings);
        let is_ending = outcome == NothingToStop::AlreadyEnded && !receipt.quiet;
        Self {
            outcome: Some(if is_ending {
                NothingToStop::Ending
            } else {
                outcome
            }),
            quiet_after_ms: None,
            cancel_observed: false,
            ..receipt
        }
    }

    /// Creates the receipt of a dry run. The items are all running work of the extent.
    pub fn of_preview(request: StopInfo, items: Vec<ReceiptItem>) -> Self {
        let items: Vec<_> = items.into_iter().map(ReceiptItem::not_asked).collect();
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

    /// Converts the receipt to the receipt of a dry run of the same stop.
    pub fn as_preview(mut self) -> Self {
        self.preview = true;
        self
    }

    /// Returns the receipt of a stop whose search for work can miss such work. An item has its own
    /// [`may_miss`](Evidence::may_miss).
    pub fn with_missed_work(mut self, missed: MissedWork) -> Self {
        self.may_miss = Some(missed);
        self
    }

    /// Returns the receipt with this effect on the conversation. If an engine has not acknowledged the stop, the effect
    /// stays `unknown`.
    pub fn with_conversation(mut self, conversation: ConversationEffect) -> Self {
        let mut items = self.items.iter();
        let is_engine_left = items.any(|item| {
            item.kind == ItemKind::Engine
                && item.state.breaks_quiet()
                && !item.state.is_outside_extent()
        });
        if !is_engine_left {
            self.conversation = conversation;
        }
        self
    }

    /// Returns the receipt with the metered usage of the extent.
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Adds more work of the extent to the receipt. `quiet` and `cancel_observed` are computed again from all items.
    pub fn with_items_of_extent(self, more: Vec<ReceiptItem>) -> Self {
        if more.is_empty() {
            return self;
        }
        let elapsed = self.quiet_after_ms.map(|after| after.as_f64() / 1e3);
        let findings = StopFindings {
            items: self.items.iter().cloned().chain(more).collect(),
            elapsed: Duration::from_secs_f64(elapsed.unwrap_or_default()),
        };
        let receipt = Self::of_stop(self.request, findings);
        Self {
            preview: self.preview,
            may_miss: self.may_miss,
            conversation: self.conversation,
            usage: self.usage,
            ..receipt
        }
    }

    /// Adds work outside the extent to the receipt, as still running. Skips items that the receipt already lists.
    pub fn with_outside_items(mut self, outside: impl IntoIterator<Item = ReceiptItem>) -> Self {
        let is_new = |item: &ReceiptItem| {
            let same = |named: &ReceiptItem| named.kind == item.kind && named.id == item.id;
            !self.items.iter().any(same)
        };
        let mut outside: Vec<_> = outside.into_iter().filter(is_new).collect();
        for item in &mut outside {
            item.state = ItemState::StillRunning {
                why: NotStoppedReason::OutsideExtent,
            };
        }
        if !outside.is_empty() {
            self.items = self.items.iter().cloned().chain(outside).collect();
        }
        self
    }

    /// True if recovery has made the receipt after a crash: no stop was carried out, so nothing was verified.
    pub fn is_of_crash(&self) -> bool {
        let cause = self.cause();
        cause.kind == CauseKind::Failure && cause.detail.as_deref() == Some(CRASH)
    }

    /// The request.
    pub fn request(&self) -> &StopInfo {
        &self.request
    }

    /// True if the receipt lists work of the extent. A thread counts only if it did not end, because a session also
    /// uses threads to read `/proc` and its folders.
    pub fn lists_work(&self) -> bool {
        let mut items = self.items.iter();
        items.any(|item| {
            !item.state.is_outside_extent()
                && (item.kind != ItemKind::Thread || item.state.breaks_quiet())
        })
    }

    /// True if both receipts belong to one stop, with the same extent, and list the same work of that extent.
    pub fn is_of_same_work(&self, other: &Self) -> bool {
        let inside = |receipt: &Self| {
            let items = receipt.items.iter();
            let items = items.filter(|item| !item.state.is_outside_extent());
            let mut ids: Vec<_> = items
                .map(|item| (item.kind, Arc::clone(&item.id)))
                .collect();
            ids.sort_by(|one, two| one.1.cmp(&two.1));
            ids
        };
        self.request.stop_id == other.request.stop_id
            && self.request.extent == other.request.extent
            && inside(self) == inside(other)
    }

    /// The id of the stop.
    pub fn stop_id(&self) -> &StopId {
        &self.request.stop_id
    }

    /// The cause of the stop.
    pub fn cause(&self) -> &Cause {
        &self.request.cause
    }

    /// The outcome; `None` if the stop was carried out.
    pub fn outcome(&self) -> Option<NothingToStop> {
        self.outcome
    }

    /// Work that the search of the stop can miss, in addition to the items; `None` if the search misses none.
    pub fn may_miss(&self) -> Option<MissedWork> {
        self.may_miss
    }

    /// True for a dry run.
    pub fn is_preview(&self) -> bool {
        self.preview
    }

    /// True if a check of each item showed that no work of the extent still runs.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    /// Milliseconds from the request until no work of the extent ran any more. `None` if the receipt is not quiet.
    pub fn quiet_after_ms(&self) -> Option<Millis> {
        self.quiet_after_ms
    }

    /// True if the engine acknowledged the stop and no work of the extent still runs.
    pub fn cancel_observed(&self) -> bool {
        self.cancel_observed
    }

    /// All items.
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
