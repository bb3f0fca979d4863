//! A sub-agent whose call may be asked to let it go on in the background.
//!
//! It runs in a scope of its own below the call. When the call is asked, that scope moves into the place of the new
//! background work, and the call answers with its id; nothing of the sub-agent notices. Invariants:
//! 1. Of the promotion, the end of the sub-agent and a stop one is first. The answer is there: it is given. A stop covers
//!    the call: nothing moves. It has moved: a stop of the call or its turn does not reach it any more.
//! 2. What it has used when it moves is metered with the call, and what it uses then with the end of the work.

use allstop_scope::{Placement, ScopeOptions};
use allstop_tools::{CallLink, TaskCx, ToolInvocation, promote_task};
use tokio::sync::oneshot;

use super::SubAgentBackground;
use super::child::{Child, RunningChild};
use super::tool::runs_in_background;

/// Runs it, and answers with its answer, or with the id of the work that it has become.
///
/// # Cancel safety
/// Dropping it stops the sub-agent, unless it has moved.
pub(super) async fn run(
    place: &SubAgentBackground,
    invocation: ToolInvocation,
    name: String,
    child: Child,
) -> Result<String, String> {
    let (call, link) = (&invocation.scope, &invocation.link);
    let options = ScopeOptions {
        placement: Placement::Movable,
        ..ScopeOptions::default()
    };
    let scope = call.child(call.label(), options);
    let scope = scope.map_err(|refused| format!("the agent did not start: {refused}"))?;
    let later = CallLink::unwatched(invocation.call_id.clone());
    let spec = place.task(&invocation, name, later.clone());
    let (output, watched) = (spec.output.clone(), link.clone());
    let mut running = child.start(&scope, move |line| {
        output.push(line);
        watched.output(line);
    });
    tokio::select! {
        // Its answer first: then there is nothing left to go on.
        biased;
        answer = running.answer() => return running.ended(answer, call).await,
        () = link.promotion() => {}
    }
    let (hand, handed) = oneshot::channel::<RunningChild>();
    let waiting = async move |cx: TaskCx| match handed.await {
        Ok(running) => running.finish(&cx.scope).await,
        Err(_) => Err("its call was lost".to_owned()),
    };
    match promote_task(&*place.host, spec, &scope, waiting) {
        Ok(work) => {
            link.hand_over_to(&later);
            // Refused where a stop of it was first: then it is dropped here, and has been stopped.
            drop(hand.send(running));
            Ok(runs_in_background(&work))
        }
        // A stop was first, or the host takes nothing any more: the call goes on as before.
        Err(_) => running.finish(call).await,
    }
}
