//! Ending of a turn that never began.

use allstop_core::Extent;
use allstop_core::turn::{StartRefusal, TurnStart};
use allstop_scope::Scope;

use super::{bystanders, ending_receipt, stop_policy, write_stopped};
use crate::history::RunHistory;
use crate::outcome::TurnOutcome;
use crate::turn::TurnCx;

/// Ends a turn that was refused at its start: none of its work ran.
pub(in crate::turn) async fn end_unstarted_turn(
    cx: TurnCx<'_>,
    history: &mut RunHistory,
    start: &TurnStart,
    scope: Option<&Scope>,
    refusal: &StartRefusal,
) -> TurnOutcome {
    let above = cx.run.unwrap_or(cx.above);
    let policy = stop_policy(cx, &refusal.cause());
    let is_earlier = cx.controls.was_stopped_before();
    let receipt = match above.account(Extent::Turn, bystanders(cx)) {
        Some(stop) => ending_receipt(cx, stop.receipt().await, is_earlier, policy),
        None => None,
    };
    let stopped = refusal.stop(start, policy, receipt, history.conversation());
    let outcome = write_stopped(history, scope.unwrap_or(above), Vec::new(), stopped).await;
    if let Some(scope) = scope {
        scope.close();
    }
    cx.controls.ending_turn().set_outcome(&outcome);
    outcome
}
