//! A sub-agent that moves to the background while its call runs. The move is called a promotion.
//!
//! The sub-agent runs in a separate scope below the call. A promotion moves that scope below the new background work,
//! and the call returns the id of that work. The sub-agent does not notice the move. Invariants:
//! 1. One of three events comes first: the promotion, the end of the sub-agent, or a stop. If the sub-agent has ended,
//!    its answer is returned. If a stop covers the call, the scope does not move. If the scope has moved, a stop of the
//!    call or of its turn no longer covers the scope.
//! 2. Usage before the move is metered with the call, and later usage is metered when the work ends.

use std::sync::Arc;

use allstop_scope::{Placement, ScopeOptions};
use allstop_tools::{TaskCx, ToolInvocation, promote_task};
use tokio::sync::oneshot;

use super::background::{SubAgentBackground, runs_in_background};
use super::sub_agent::{RunningSubAgent, SubAgent};

/// Runs the sub-agent. Returns its answer, or the id of its background work if the sub-agent has moved.
///
/// # Cancel safety
/// Dropping the future stops the sub-agent, unless the sub-agent has moved.
pub(super) async fn run(
    place: &SubAgentBackground,
    invocation: ToolInvocation,
    name: String,
    sub_agent: SubAgent,
) -> Result<String, String> {
    let (call, link) = (&invocation.scope, &invocation.link);
    let options = ScopeOptions::default().placement(Placement::Movable);
    let scope = call.child(call.label(), options);
    let scope = scope.map_err(|refused| format!("the agent did not start: {refused}"))?;
    let (spec, background_calls) = place.task_spec(&invocation, name);
    // A promoted sub-agent names also the calls that it made before.
    link.copy_journal_to(Arc::new(background_calls.clone()));
    let background_link = spec.link.clone();
    let (output, call_link) = (spec.output.clone(), link.clone());
    let mut running = sub_agent.start(&scope, move |line| {
        output.push(line);
        call_link.output(line);
    });
    tokio::select! {
        // The answer has priority: after the end of the sub-agent no work remains to move.
        biased;
        answer = running.answer() => {
            return running.finish_with(answer, call).await.map_err(String::from);
        }
        () = link.promotion() => {}
    }
    let (hand_over, handed_over) = oneshot::channel::<RunningSubAgent>();
    let waiting = async move |cx: TaskCx| match handed_over.await {
        Ok(running) => {
            let ended = running.finish(&cx.scope).await;
            ended.map_err(|failure| background_calls.after(&failure.reason))
        }
        Err(_) => Err("its call was lost".to_owned()),
    };
    match promote_task(&*place.host, spec, &scope, waiting) {
        Ok(work) => {
            link.hand_over_to(&background_link);
            // If a stop of the background work came first, the other end of the channel no longer accepts the
            // sub-agent, which is dropped here. That stop has already covered the sub-agent.
            drop(hand_over.send(running));
            Ok(runs_in_background(&work))
        }
        // A stop came first, or the host accepts no more work: the call continues as before.
        Err(_) => running.finish(call).await.map_err(String::from),
    }
}
