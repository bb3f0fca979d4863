//! Watching a run: a look after each poll of any task, until it is over and every stop is answered.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use allstop_agent::{EventSink, RunOutcome};
use allstop_log::Log;
use allstop_log::session::stream_of;
use tokio::time::sleep;

use super::session_id;
use crate::explore::clockwork::Tick;
use crate::explore::live::{Ended, Live};
use crate::explore::point::{EVENT, Moment, POLL};
use crate::explore::stage::Stage;

/// How long a run may take on the paused clock. Nothing that ends takes as long, so whatever does will never end.
pub(crate) const HANGS_AFTER: Duration = Duration::from_hours(12);

/// How many polls a run may take. The longest takes a few thousand; one that comes here spins.
pub(crate) const POLLS_MAX: usize = 200_000;

/// Makes a point of everything that is shown live.
pub(super) fn observer(stage: &Stage) -> EventSink {
    let (points, world) = (stage.points().clone(), stage.world().clone());
    EventSink::observer(move |event| {
        world.note_event(event.clone());
        points.reach(Moment::After, EVENT, event_name(event));
    })
}

/// Looks after each poll of any task, until the run is over and every stop is answered.
pub(super) async fn until_over(
    live: &Arc<Live>,
    stage: &Stage,
    log: &Arc<dyn Log>,
    tick: &Tick,
) -> Ended {
    let mut hangs = Box::pin(sleep(HANGS_AFTER));
    let mut polls = 0;
    let mut ended: Option<(Option<RunOutcome>, u64, Duration)> = None;
    let hung = std::future::poll_fn(|cx: &mut Context<'_>| {
        if tick.is_one() {
            polls += 1;
            stage.points().reach(Moment::Inside, POLL, "");
        }
        if live.is_impossible() {
            return Poll::Ready(true);
        }
        live.poll_answers(cx, stage);
        if ended.is_none() {
            let over = match live.poll_outcome(cx) {
                Poll::Ready(outcome) => Some(outcome),
                Poll::Pending if live.caller_gone().is_some() && is_free(&**log, cx) => Some(None),
                Poll::Pending => None,
            };
            if let Some(outcome) = over {
                ended = Some((outcome, stage.world().now(), stage.points().elapsed()));
                live.is_over();
                // A stop can come after the end too.
                stage.points().reach(Moment::After, "run", "");
            }
        }
        live.poll_answers(cx, stage);
        let recovered = stage.store().poll_recovered(cx);
        if ended.is_some() && live.all_answered() && recovered {
            return Poll::Ready(false);
        }
        if polls > POLLS_MAX {
            return Poll::Ready(true);
        }
        hangs.as_mut().poll(cx).map(|()| true)
    })
    .await;
    let (outcome, over, over_at) = ended.unwrap_or_else(|| {
        let now = stage.world().now();
        (None, now, stage.points().elapsed())
    });
    Ended {
        outcome,
        over,
        over_at,
        hung,
    }
}

/// Whether nobody holds the session any more: an engine whose caller has gone lets go of it when it has ended.
fn is_free(log: &dyn Log, cx: &mut Context<'_>) -> bool {
    let mut owner = log.lock_owner(&stream_of(&session_id()));
    matches!(
        std::pin::Pin::new(&mut owner).poll(cx),
        Poll::Ready(Ok(None))
    )
}

fn event_name(event: &allstop_agent::AgentEvent) -> &'static str {
    use allstop_agent::AgentEvent as E;
    match event {
        E::TurnStarted { .. } => "turn_started",
        E::StepStarted { .. } => "step_started",
        E::TextDelta { .. } => "text_delta",
        E::ReasoningDelta { .. } => "reasoning_delta",
        E::StepAnswered { .. } => "step_answered",
        E::RetryScheduled { .. } => "retry_scheduled",
        E::ToolRequested { .. } => "tool_requested",
        E::PermissionAsked { .. } => "permission_asked",
        E::PermissionAnswered { .. } => "permission_answered",
        E::ToolStarted { .. } => "tool_started",
        E::ToolOutput { .. } => "tool_output",
        E::ToolFinished { .. } => "tool_finished",
        E::BackgroundStarted { .. } => "background_started",
        E::StopHeard { .. } => "stop_heard",
        E::TurnEnded { .. } => "turn_ended",
    }
}
