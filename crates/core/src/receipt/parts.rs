//! Merges several receipts into one. The receipts belong to parallel parts of one stop, or to consecutive stops.

use std::sync::Arc;
use std::time::Duration;

use super::{ConversationEffect, NothingToStop, Receipt, ReceiptItem, StopFindings, StopInfo};
use crate::usage::Usage;

impl Receipt {
    /// Creates the receipt of one stop that was carried out in parts, in parallel or one after the other. Each part has
    /// its own receipt and its own grace period. `quiet_after_ms` is the time from this request until the last part was
    /// quiet.
    ///
    /// If a part found nothing to do, the merged receipt lists only the work of this part that still runs. If no part
    /// found anything to do, the merged outcome is `already_ended`, `ending` or `not_found`. A part that appears twice counts
    /// once. An item of several parts appears once. The state of such an item comes from the last part that has the
    /// item in its extent. `after_ms` of each item is the time since this request. This request may have joined a part
    /// that began earlier. Items of that part may have ended before this request, and their time is 0.
    pub fn merge_parts(request: StopInfo, parts: &[Arc<Self>]) -> Self {
        let parts = without_repeats(parts);
        let items: Arc<[ReceiptItem]> = items_of(&parts, &request).into();
        let carried_out = || parts.iter().filter(|part| part.outcome.is_none());
        let ended = || {
            let mut outcomes = parts.iter().map(|part| part.outcome);
            outcomes.any(|outcome| outcome.is_some_and(|it| it != NothingToStop::NotFound))
        };
        let may_miss = parts.iter().find_map(|part| part.may_miss);
        if carried_out().next().is_none() {
            let outcome = if ended() {
                NothingToStop::AlreadyEnded
            } else {
                NothingToStop::NotFound
            };
            return Self {
                may_miss,
                ..Self::nothing_stopped(request, outcome, items)
            };
        }
        let quiet_at = carried_out().filter_map(|part| part.quiet_after(&request));
        let findings = StopFindings {
            items,
            elapsed: quiet_at.max().unwrap_or_default(),
        };
        let receipt = Self::of_stop(request, findings);
        let conversation = carried_out().fold(receipt.conversation, |all, part| {
            all.merge(part.conversation)
        });
        let usage = carried_out().fold(Usage::default(), |sum, part| sum + part.usage);
        let receipt = receipt.with_conversation(conversation).with_usage(usage);
        Self {
            may_miss,
            ..receipt
        }
    }

    /// Merges receipts into one receipt, with the request of the first receipt. `None` if the list is empty.
    pub fn joined(parts: &[Arc<Self>]) -> Option<Arc<Self>> {
        let (first, rest) = parts.split_first()?;
        Some(match rest {
            [] => Arc::clone(first),
            _ => Arc::new(Self::merge_parts(first.request.clone(), parts)),
        })
    }

    /// Time from another stop request until this receipt was quiet.
    fn quiet_after(&self, request: &StopInfo) -> Option<Duration> {
        let after = self.quiet_after_ms?.shifted(self.request.later_ms(request));
        Some(Duration::from_secs_f64(after.as_f64() / 1e3))
    }
}

/// The receipts without duplicates. Two parts that joined the same stop share one receipt.
fn without_repeats(parts: &[Arc<Receipt>]) -> Vec<&Arc<Receipt>> {
    let mut different: Vec<&Arc<Receipt>> = Vec::with_capacity(parts.len());
    for part in parts {
        if !different.iter().any(|other| Arc::ptr_eq(other, part)) {
            different.push(part);
        }
    }
    different
}

impl StopInfo {
    /// Milliseconds from another request to this request; negative if this request came earlier.
    fn later_ms(&self, other: &Self) -> f64 {
        (self.requested_at.unix_ms() - other.requested_at.unix_ms()) as f64
    }
}

/// The items of all parts, each item once. If an item is outside the extent of every part, the state of the item comes
/// from the last part.
fn items_of(parts: &[&Arc<Receipt>], request: &StopInfo) -> Vec<ReceiptItem> {
    let mut items = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let later = parts.get(at + 1..).unwrap_or_default();
        let named_elsewhere = |item: &ReceiptItem| {
            if item.state.is_outside_extent() {
                let inside = parts.iter().any(|other| other.has_inside(item));
                inside || later.iter().any(|other| other.names(item))
            } else {
                later.iter().any(|other| other.has_inside(item))
            }
        };
        let kept = part.items.iter().filter(|item| !named_elsewhere(item));
        let shift = part.request.later_ms(request);
        items.extend(kept.cloned().map(|mut item| {
            item.state.shift(shift);
            item
        }));
    }
    items
}

impl Receipt {
    fn names(&self, item: &ReceiptItem) -> bool {
        let same = |own: &ReceiptItem| own.kind == item.kind && own.id == item.id;
        self.items.iter().any(same)
    }

    fn has_inside(&self, item: &ReceiptItem) -> bool {
        let same = |own: &ReceiptItem| {
            own.kind == item.kind && own.id == item.id && !own.state.is_outside_extent()
        };
        self.items.iter().any(same)
    }
}

impl ConversationEffect {
    /// Combined effect of two parts: `unknown` if one of them is unknown.
    fn merge(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::KeptCompletedSteps, _) | (_, Self::KeptCompletedSteps) => {
                Self::KeptCompletedSteps
            }
            (Self::Unchanged, Self::Unchanged) => Self::Unchanged,
        }
    }
}
