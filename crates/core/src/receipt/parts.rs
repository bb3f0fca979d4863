//! One receipt of several stops: of parts side by side, or of stops that followed one another.

use std::sync::Arc;
use std::time::Duration;

use super::{ConversationEffect, Receipt, ReceiptItem, StopFindings, StopOutcome, StopRequest};
use crate::usage::Usage;

impl Receipt {
    /// The receipt of one stop that was carried out in parts, each with a ladder of its own, whether side by side or one
    /// after the other: `quiet_after_ms` counts from this request to the last part's quiet.
    ///
    /// Parts that found nothing to do add only what they name as still running; if all parts found nothing to do, that is
    /// the answer. A part that is there twice counts once. What one part names as outside of its extent is left out where
    /// another part has it in its extent.
    pub fn of_parts(request: StopRequest, parts: &[Arc<Self>]) -> Self {
        let parts = without_repeats(parts);
        let items: Arc<[ReceiptItem]> = items_of(&parts).into();
        let carried_out = || parts.iter().filter(|part| part.outcome.is_none());
        let ended = || {
            let mut outcomes = parts.iter().map(|part| part.outcome);
            outcomes.any(|outcome| outcome == Some(StopOutcome::AlreadyEnded))
        };
        if carried_out().next().is_none() {
            let outcome = if ended() {
                StopOutcome::AlreadyEnded
            } else {
                StopOutcome::NotFound
            };
            return Self::of_rest(request, outcome, items);
        }
        let quiet_at = carried_out().filter_map(|part| part.quiet_after(&request));
        let findings = StopFindings {
            items,
            elapsed: quiet_at.max().unwrap_or_default(),
        };
        let receipt = Self::of_stop(request, findings);
        let conversation = carried_out().fold(receipt.conversation, |all, part| {
            all.together_with(part.conversation)
        });
        let usage = carried_out().fold(Usage::default(), |sum, part| sum + part.usage);
        receipt.with_conversation(conversation).with_usage(usage)
    }

    /// From another request to this receipt's quiet.
    fn quiet_after(&self, request: &StopRequest) -> Option<Duration> {
        let own = Duration::from_secs_f64(self.quiet_after_ms?.as_f64() / 1e3);
        let begun_at = self.request.requested_at.unix_ms();
        let later_ms = begun_at.saturating_sub(request.requested_at.unix_ms());
        Some(own + Duration::from_millis(later_ms.try_into().unwrap_or_default()))
    }
}

/// Each receipt once: two parts that joined one stop have the same answer.
fn without_repeats(parts: &[Arc<Receipt>]) -> Vec<&Arc<Receipt>> {
    let mut different: Vec<&Arc<Receipt>> = Vec::with_capacity(parts.len());
    for part in parts {
        if !different.iter().any(|other| Arc::ptr_eq(other, part)) {
            different.push(part);
        }
    }
    different
}

/// The items of all parts. One that is outside of every part's extent is named once, as the last part names it.
fn items_of(parts: &[&Arc<Receipt>]) -> Vec<ReceiptItem> {
    let mut items = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let later = parts.get(at + 1..).unwrap_or_default();
        let named_elsewhere = |item: &ReceiptItem| {
            let inside = parts.iter().any(|other| other.has_inside(item));
            inside || later.iter().any(|other| other.names(item))
        };
        let kept = part
            .items
            .iter()
            .filter(|item| !(item.state.is_outside_extent() && named_elsewhere(item)));
        items.extend(kept.cloned());
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
    /// The effect of two parts of a stop: what is not known of one is not known of both.
    fn together_with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::KeptCompletedSteps, _) | (_, Self::KeptCompletedSteps) => {
                Self::KeptCompletedSteps
            }
            (Self::Unchanged, Self::Unchanged) => Self::Unchanged,
        }
    }
}
