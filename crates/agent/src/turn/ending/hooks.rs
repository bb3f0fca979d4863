//! Calls of the hooks after the end of a turn.

use std::sync::Arc;

use allstop_core::{Extent, Receipt};
use allstop_scope::ScopeOptions;

use super::{TurnCx, bystanders, joined};
use crate::history::RunHistory;
use crate::hook::{self, HookCx, HookEvent, HookResult};
use crate::outcome::TurnOutcome;

/// Calls the hooks in a scope beside the turn's scope, which is closed. A stop meanwhile stops the hooks, and their
/// account joins the turn's receipt. After a stop no further hook starts.
pub(super) async fn call_end_hooks(
    cx: TurnCx<'_>,
    history: &RunHistory,
    outcome: &mut TurnOutcome,
) {
    let Ok(run) = cx.run else { return };
    let event = HookEvent::TurnEnd {
        stop_reason: outcome.stop_reason,
    };
    if !cx.parts.hooks.iter().any(|hook| hook.wants(&event)) {
        return;
    }
    let label = format!("{}/hooks", run.label());
    let Ok(scope) = run.child(label, ScopeOptions::default()) else {
        return;
    };
    let ending_turn = cx.controls.ending_turn();
    ending_turn.set_outcome(outcome);
    if ending_turn.may_begin_hooks(&scope) {
        let hook_cx = HookCx {
            session_id: history.session_id().clone(),
            turn: outcome.turn,
            scope: scope.clone(),
        };
        // The turn has ended: the verdict changes nothing.
        let result = hook::call_hooks(&cx.parts.hooks, &hook_cx, &event).await;
        if let HookResult::Stopped = result
            && let Some(account) = scope.account(Extent::Turn, bystanders(cx))
        {
            let of_the_hooks = account.receipt().await;
            outcome.receipt = match outcome.receipt.take() {
                // The empty receipt of a failure would hide the cause of the hooks' stop.
                Some(own) if own.items().is_empty() => {
                    let conversation = own.conversation();
                    Some(Arc::new(
                        Receipt::clone(&of_the_hooks).with_conversation(conversation),
                    ))
                }
                own => {
                    let parts: Vec<_> = own.into_iter().chain([of_the_hooks]).collect();
                    joined(&run.label(), &parts)
                }
            };
        }
    }
    scope.close();
}
