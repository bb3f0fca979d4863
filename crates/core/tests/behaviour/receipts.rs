//! Receipts, the results of stops: `quiet` and `cancel_observed` follow from the items of a receipt, and several
//! receipts merge into one.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{
    ConversationEffect, ItemKind, ItemState, NotStoppedReason, NothingToStop, ReceiptItem,
    StopFindings, StopInfo,
};
use allstop_core::{Cause, CauseKind, Extent, Receipt, Timestamp, Usage};

const FINISHED: ItemState = ItemState::Finished { after_ms: None };

fn request(at_ms: i64) -> StopInfo {
    StopInfo {
        stop_id: format!("stop_{at_ms}").into(),
        target: "here".into(),
        extent: Extent::Turn,
        cause: Cause::new(CauseKind::User),
        requested_at: Timestamp::from_unix_ms(at_ms),
    }
}

fn receipt(at_ms: i64, items: &[ReceiptItem]) -> Arc<Receipt> {
    let findings = StopFindings {
        items: items.into(),
        elapsed: Duration::from_millis(10),
    };
    Arc::new(Receipt::of_stop(request(at_ms), findings))
}

fn item(kind: ItemKind, id: &str, state: ItemState) -> ReceiptItem {
    ReceiptItem::new(kind, id, "sleep 600", state)
}

fn running(why: NotStoppedReason) -> ItemState {
    ItemState::StillRunning { why }
}

fn background(state: ItemState) -> ReceiptItem {
    item(ItemKind::Background, "bg_1", state)
}

#[test]
fn an_engine_that_has_not_acknowledged_breaks_quiet() {
    let engine = item(
        ItemKind::Engine,
        "engine_1",
        running(NotStoppedReason::NotAcknowledged),
    );
    let deaf = receipt(0, &[engine]);
    assert!(!deaf.quiet() && !deaf.cancel_observed());
    assert_eq!(deaf.conversation(), ConversationEffect::Unknown);
    let heard = receipt(0, &[]);
    assert!(heard.quiet() && heard.cancel_observed());
    assert_eq!(heard.conversation(), ConversationEffect::Unchanged);
}

#[test]
fn work_outside_one_part_is_reported_by_a_later_part() {
    let call = item(ItemKind::ToolCall, "call_1", FINISHED);
    let turn = receipt(
        1_000,
        &[
            call.clone(),
            background(running(NotStoppedReason::OutsideExtent)),
        ],
    );
    let ended = background(FINISHED);
    let later = receipt(1_100, std::slice::from_ref(&ended));
    let request = StopInfo {
        extent: Extent::Process,
        ..turn.request().clone()
    };
    let both = Receipt::merge_parts(request, &[Arc::clone(&turn), later]);
    assert_eq!(both.items(), [call, ended]);
    assert_eq!(both.request().extent, Extent::Process);
    assert_eq!(both.stop_id(), turn.stop_id());
    assert_eq!(
        both.quiet_after_ms(),
        Some(Duration::from_millis(110).into())
    );
    assert!(both.quiet() && both.cancel_observed());
}

#[test]
fn item_of_several_parts_is_listed_once_as_in_the_last() {
    let engine = |why| item(ItemKind::Engine, "engine_4", running(why));
    let parts = [
        receipt(0, &[engine(NotStoppedReason::NotAcknowledged)]),
        receipt(0, &[engine(NotStoppedReason::BlocksItsThread)]),
    ];
    let both = Receipt::merge_parts(request(0), &parts);
    assert_eq!(both.items(), [engine(NotStoppedReason::BlocksItsThread)]);
}

#[test]
fn times_of_a_later_part_count_from_the_first_request() {
    let ended = |after_ms: u64| {
        background(ItemState::Finished {
            after_ms: Some(Duration::from_millis(after_ms).into()),
        })
    };
    let later = receipt(1_100, &[ended(5)]);
    let both = Receipt::merge_parts(request(1_000), &[later]);
    assert_eq!(both.items(), [ended(105)]);
}

/// Regression: a second stop stopped work that an earlier stop had already stopped. The receipt of the second stop then
/// contained the duration of the first stop, so the end of the work was in the future.
#[test]
fn times_of_an_earlier_part_count_from_the_request() {
    let ended = |after_ms: u64| {
        background(ItemState::Finished {
            after_ms: Some(Duration::from_millis(after_ms).into()),
        })
    };
    let findings = StopFindings {
        items: [ended(5), ended(2_000)].into(),
        elapsed: Duration::from_millis(2_002),
    };
    let joined = Arc::new(Receipt::of_stop(request(1_000), findings));
    let second = Receipt::merge_parts(request(2_200), &[joined]);
    assert_eq!(second.items(), [ended(0), ended(800)]);
    assert_eq!(
        second.quiet_after_ms(),
        Some(Duration::from_millis(802).into())
    );
}

#[test]
fn item_outside_all_parts_is_listed_once() {
    let outside = background(running(NotStoppedReason::OutsideExtent));
    let parts = [
        receipt(0, std::slice::from_ref(&outside)),
        receipt(0, std::slice::from_ref(&outside)),
    ];
    let both = Receipt::merge_parts(request(0), &parts);
    assert_eq!(both.items(), [outside]);
    assert!(both.quiet());
}

#[test]
fn parts_that_joined_one_stop_count_once() {
    let part = receipt(0, &[item(ItemKind::ToolCall, "call_1", FINISHED)]);
    let usage = Usage {
        input_tokens: 3,
        ..Usage::default()
    };
    let part = Arc::new(Receipt::clone(&part).with_usage(usage));
    let both = Receipt::merge_parts(request(0), &[Arc::clone(&part), part]);
    assert_eq!(both.items().len(), 1);
    assert_eq!(both.usage(), usage);
}

#[test]
fn unknown_effect_of_one_part_makes_the_whole_unknown() {
    use ConversationEffect::{KeptCompletedSteps, Unchanged, Unknown};
    for (first, second, all) in [
        (Unchanged, Unchanged, Unchanged),
        (KeptCompletedSteps, Unchanged, KeptCompletedSteps),
        (Unchanged, KeptCompletedSteps, KeptCompletedSteps),
        (KeptCompletedSteps, Unknown, Unknown),
        (Unknown, KeptCompletedSteps, Unknown),
        (Unchanged, Unknown, Unknown),
    ] {
        let part = |effect| Arc::new(Receipt::clone(&receipt(0, &[])).with_conversation(effect));
        let both = Receipt::merge_parts(request(0), &[part(first), part(second)]);
        assert_eq!(both.conversation(), all, "{first:?} and {second:?}");
    }
}

#[test]
fn part_that_had_ended_still_lists_running_work() {
    let left = item(
        ItemKind::Thread,
        "thread_1",
        running(NotStoppedReason::BlockingThread),
    );
    let ended = Arc::new(Receipt::already_ended(request(0), vec![left.clone()]));
    assert_eq!(ended.outcome(), Some(NothingToStop::Ending));
    assert!(!ended.quiet() && !ended.cancel_observed());

    let alone = Receipt::merge_parts(request(0), &[Arc::clone(&ended)]);
    assert_eq!(alone.outcome(), Some(NothingToStop::Ending));
    assert_eq!(alone.items(), std::slice::from_ref(&left));
    assert!(!alone.quiet());

    let carried_out = receipt(0, &[background(FINISHED)]);
    let both = Receipt::merge_parts(request(0), &[ended, carried_out]);
    assert_eq!(both.outcome(), None);
    assert_eq!(both.items(), [left, background(FINISHED)]);
    assert!(!both.quiet() && !both.cancel_observed());
}
