//! Items of work that a stop left running.

use allstop_core::receipt::{ItemState, NotStoppedReason, ReceiptItem};

/// True if the stop covered the item, but did not verifiably end it. The receipt is then not quiet: something still
/// runs.
pub(super) fn is_left(item: &ReceiptItem) -> bool {
    item.state.breaks_quiet() && !is_outside(item)
}

/// True if a stop did not cover an item.
pub(super) fn is_outside(item: &ReceiptItem) -> bool {
    matches!(
        item.state,
        ItemState::StillRunning {
            why: NotStoppedReason::OutsideExtent
        }
    )
}
