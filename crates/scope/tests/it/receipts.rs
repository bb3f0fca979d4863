//! Receipts of units, effects, bystanders and previews. A unit is a scope whose whole work is one item of a receipt. A
//! bystander is a scope outside the stop whose work the receipt lists.

use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason};
use allstop_core::{Cause, CauseKind, Effect, Extent};
use allstop_scope::{RootOptions, ScopeOptions, StopRequest, WorkSpec};

use crate::{begun, by_user, future, root};

fn unit(effect: Effect) -> ScopeOptions {
    let spec = WorkSpec::new(ItemKind::ToolCall, "http_post")
        .id("call_4")
        .effect(effect);
    ScopeOptions::default().unit(spec)
}

#[tokio::test(start_paused = true)]
async fn a_unit_is_one_item_in_the_worst_state_of_its_parts() {
    let scope = root();
    let call = scope.child("call", unit(Effect::ReadOnly)).unwrap();
    call.spawn(
        future("good"),
        |cx| async move { cx.stopped_at("idle").await },
    )
    .unwrap();
    let inner = call.child("inner", ScopeOptions::default()).unwrap();
    let _remote = inner.register_remote(future("remote"), || {}).unwrap();
    begun().await;
    let receipt = scope.stop(by_user()).await;
    assert_eq!(receipt.items().len(), 1);
    let item = &receipt.items()[0];
    assert_eq!((&*item.id, &*item.name), ("call_4", "http_post"));
    assert_eq!(
        item.state,
        ItemState::Unreachable {
            why: NotStoppedReason::NotConfirmed
        }
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_unknown_unless_it_may_be_repeated() {
    for (effect, state) in [
        (Effect::Irreversible, "unknown"),
        (Effect::Compensatable, "unknown"),
        (Effect::Idempotent, "stopped"),
        (Effect::ReadOnly, "stopped"),
    ] {
        let scope = root();
        let call = scope.child("call", unit(effect)).unwrap();
        call.spawn(future("post"), |_| std::future::pending::<()>())
            .unwrap();
        begun().await;
        let receipt = scope.stop(by_user()).await;
        let item = &receipt.items()[0];
        assert_eq!(item.state.as_str(), state, "{effect:?}");
        assert_eq!(item.note.is_some(), state == "unknown");
        assert_eq!(item.effect.is_some(), state == "unknown");
        assert!(receipt.quiet(), "our side has verifiably ended");
    }
}

#[tokio::test(start_paused = true)]
async fn bystanders_are_named_and_do_not_break_quiet() {
    let scope = root();
    let turn = scope.child("turn", ScopeOptions::default()).unwrap();
    let background = scope.child("background", ScopeOptions::default()).unwrap();
    let spec = WorkSpec::new(ItemKind::Background, "npm run dev").id("bg_1");
    background
        .spawn(spec, |_| std::future::pending::<()>())
        .unwrap();
    let order = StopRequest::new(Extent::Turn, Cause::new(CauseKind::User)).bystander(&background);
    begun().await;
    let receipt = turn.stop(order).await;
    assert!(receipt.quiet());
    let item = &receipt.items()[0];
    assert_eq!(
        item.state,
        ItemState::StillRunning {
            why: NotStoppedReason::OutsideExtent
        }
    );
    assert_eq!(&*item.id, "bg_1");
}

#[tokio::test(start_paused = true)]
async fn preview_lists_running_work_and_stops_nothing() {
    let scope = root();
    scope
        .spawn(future("f"), |_| std::future::pending::<()>())
        .unwrap();
    let preview = scope.preview(Extent::Process, Cause::new(CauseKind::User));
    assert!(preview.is_preview() && !preview.quiet());
    assert_eq!(preview.items().len(), 1);
    assert!(!scope.is_stopped());
    begun().await;
    assert!(scope.stop(by_user()).await.quiet());
}

/// If two stops have the same time in milliseconds, the id decides which stop is the later one.
#[tokio::test]
async fn stop_ids_are_in_the_order_of_the_stops() {
    let options = RootOptions::single_runtime();
    let ids: Vec<_> = (0..1_000).map(|_| (options.new_stop_id)()).collect();
    assert!(ids.is_sorted_by(|before, after| before < after));
}
