//! Telling the hooks that a turn has ended.

use std::sync::Arc;

use allstop_core::{Extent, Receipt};
use allstop_scope::ScopeOptions;

use super::{TurnCx, bystanders, joined};
use crate::history::History;
use crate::hook::{self, HookCx, HookEvent, Told};
use crate::outcome::TurnOutcome;

/// Tells the hooks, in a scope beside the turn's, which is closed. A stop that comes meanwhile asks them to end, as it asks
/// everything, and the account of them joins the turn's receipt. Behind a stop no hook starts.
pub(super) async fn tell_end(cx: TurnCx<'_>, history: &History, outcome: &mut TurnOutcome) {
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
    let after_turn = cx.controls.after_turn();
    after_turn.ended(outcome);
    if after_turn.may_begin_hooks(&scope) {
        let hook_cx = HookCx {
            session_id: history.session_id().clone(),
            turn: outcome.turn,
            scope: scope.clone(),
        };
        // The turn has its ending: a verdict changes nothing of it.
        let told = hook::tell(&cx.parts.hooks, &hook_cx, &event).await;
        if let Told::Stopped = told
            && let Some(account) = scope.account(Extent::Turn, bystanders(cx))
        {
            let of_the_hooks = account.receipt().await;
            outcome.receipt = match outcome.receipt.take() {
                // A failure's own receipt, with nothing in it, would hide who has stopped the hooks.
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
