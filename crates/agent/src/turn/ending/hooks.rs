//! Calls of the hooks (callbacks of the embedding program) after the end of a turn.

use allstop_core::Extent;
use allstop_scope::ScopeOptions;

use super::TurnCx;
use crate::history::RunHistory;
use crate::hook::{HookCx, HookEvent};
use crate::hook_calls::{self, HookResult};
use crate::outcome::TurnOutcome;

/// Calls the hooks in a separate scope, because the scope of the turn is closed. A stop during the hooks has a separate
/// receipt. After such a stop, no further hook starts.
pub(super) async fn call_end_hooks(cx: TurnCx<'_>, history: &RunHistory, outcome: &TurnOutcome) {
    let Ok(run) = cx.run else { return };
    let event = HookEvent::TurnEnd {
        stop_reason: outcome.stop_reason,
    };
    if !hook_calls::is_wanted(&cx.parts.hooks, &event) {
        return;
    }
    let label = format!("{}/hooks", run.label());
    let Ok(scope) = run.child(label, ScopeOptions::default()) else {
        return;
    };
    let ending_turn = cx.controls.ending_turn();
    if ending_turn.may_begin_hooks(&scope) {
        let hook_cx = HookCx {
            session_id: history.session_id().clone(),
            turn: outcome.turn,
            scope: scope.clone(),
        };
        // The turn has ended: the verdict changes nothing.
        let result = hook_calls::call_hooks(cx.parts, &hook_cx, &event).await;
        if let HookResult::Stopped = result
            && let Some(account) = scope.account(Extent::Turn, Vec::new())
        {
            // The turn ends only after its hooks have ended. After a stop, the hooks may take the grace of this stop to
            // end.
            let _whose_stop_has_it = account.receipt().await;
        }
    }
    scope.close();
}
