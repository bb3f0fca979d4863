//! Watches a run: a look after each poll of any task, until it is over and every stop is answered.

use std::task::{Context, Poll};

use tokio::time::sleep;

use super::after::HANGS_AFTER;
use crate::observe::{Moment, POLL};
use crate::stage::clockwork::Tick;
use crate::stage::{RunStage, StoppableRun};

/// Most polls that a run may take. The longest takes a few thousand; one that comes here spins.
const POLLS_MAX: usize = 200_000;

/// Looks after each poll of any task, until the run is over and everybody is answered. True if that never happens, or
/// if something that was planned could not be done.
///
/// `is_over` is asked until it says so, and `is_answered` from then on.
pub(super) async fn watch<R: StoppableRun>(
    run: &R,
    stage: &RunStage,
    tick: &Tick,
    mut is_over: impl FnMut(&mut Context<'_>) -> bool,
    is_answered: impl Fn(&mut Context<'_>) -> bool,
) -> bool {
    let mut hangs = Box::pin(sleep(HANGS_AFTER));
    let (mut polls, mut over) = (0, false);
    std::future::poll_fn(|cx| {
        if tick.is_one() {
            polls += 1;
            stage.points().reach(Moment::Inside, POLL, "");
        }
        if run.stops().is_impossible() {
            return Poll::Ready(true);
        }
        run.stops().poll_answers(cx);
        if !over && is_over(cx) {
            over = true;
            // A stop can come after the end too.
            stage.points().reach(Moment::After, "run", "");
        }
        run.stops().poll_answers(cx);
        let recovered = stage.store().poll_recovered(cx);
        if over && is_answered(cx) && recovered {
            return Poll::Ready(false);
        }
        if polls > POLLS_MAX {
            return Poll::Ready(true);
        }
        hangs.as_mut().poll(cx).map(|()| true)
    })
    .await
}
