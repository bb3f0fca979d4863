//! The next step of a stop in a cluster. The decision needs no runtime.

use allstop_log::Version;

use crate::model::Task;

/// Progress of a stop: the steps and reads so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TaskStopProgress {
    /// True after the stop has read the task at least once before the end of the task.
    pub has_seen_it_open: bool,
    /// True after the stop has sent a wake-up, a hint through which a worker finds the task.
    pub is_woken: bool,
    /// True after this stop or another stop has written its request to the log.
    pub has_requested: bool,
    /// The latest version of the task that the stop has read.
    pub version: Version,
}

/// The task as read by a stop.
#[derive(Debug, Clone, Copy)]
pub(super) struct StopLook<'a> {
    /// Version at which the task was read.
    pub version: Version,
    pub task: &'a Task,
    /// True if no worker owns the task, and this process may end the task.
    pub can_end_here: bool,
    /// True after the timeout of the stop.
    pub is_late: bool,
}

/// Next step of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopStep {
    /// The task had ended before the stop began: stop the orphaned work of the task, which still runs.
    StopLeft,
    /// The task has ended since the stop began: answer with this end.
    Answer,
    /// The time is over, and the log contains the request: answer with the progress.
    Report,
    /// The time is over, and the log does not contain the request, because other writers always came first. Give up
    /// with an error.
    GiveUp,
    /// The log has returned an older version than this stop has already seen: read again.
    ReadAgain,
    /// The task has no owner, and is at rest or has a stop request: end the task in this process. If that fails, decide
    /// again.
    EndHere,
    /// An earlier read of the task had the stop request, this read has none, and the task has not ended: the canceler
    /// has refused the stop.
    Refused,
    /// The task runs: write the request to its log, and ask the owner to stop the task.
    RequestRunning,
    /// The task is at rest: send a wake-up that announces the request, and write the request.
    RequestAtRest,
    /// Ask the owner again. If `wakes` is true, send a wake-up first, because no wake-up may exist.
    Ask { wakes: bool },
}

/// Decides the next step of a stop.
pub(super) fn next_stop_step(progress: &TaskStopProgress, look: StopLook<'_>) -> StopStep {
    let task = look.task;
    if task.has_ended() {
        return if progress.has_seen_it_open {
            StopStep::Answer
        } else {
            StopStep::StopLeft
        };
    }
    let is_requested = task.stop_requested.is_some();
    match (look.is_late, is_requested) {
        (true, true) => return StopStep::Report,
        (true, false) => return StopStep::GiveUp,
        (false, _) => {}
    }
    if look.version < progress.version {
        return StopStep::ReadAgain;
    }
    // This also applies if the stop is already requested. Ending the task here needs no worker, and all workers may be
    // busy.
    if look.can_end_here && (is_requested || !task.is_executing) {
        return StopStep::EndHere;
    }
    match (is_requested, task.is_executing) {
        (false, _) if progress.has_requested => StopStep::Refused,
        (false, true) => StopStep::RequestRunning,
        (false, false) => StopStep::RequestAtRest,
        // A running task already has a wake-up. For a task at rest, a worker may have removed the wake-up before the
        // request was stored.
        (true, is_executing) => StopStep::Ask {
            wakes: !is_executing && !progress.is_woken,
        },
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::{Cause, CauseKind};

    use super::*;
    use crate::model::TaskRecord;
    use crate::model::test_tasks::{at, ended, rested, started, task_of};

    fn requested() -> TaskRecord {
        TaskRecord::StopRequested {
            cause: Cause::new(CauseKind::User),
            at: at(),
        }
    }

    fn running() -> Task {
        task_of([started(1, "other")])
    }

    fn resting() -> Task {
        task_of([started(1, "other"), rested()])
    }

    fn running_requested() -> Task {
        task_of([started(1, "other"), requested()])
    }

    fn resting_requested() -> Task {
        task_of([started(1, "other"), rested(), requested()])
    }

    fn over() -> Task {
        task_of([started(1, "other"), ended(None, None)])
    }

    fn look(task: &Task) -> StopLook<'_> {
        StopLook {
            version: Version(9),
            task,
            can_end_here: false,
            is_late: false,
        }
    }

    fn step(progress: &TaskStopProgress, task: &Task) -> StopStep {
        next_stop_step(progress, look(task))
    }

    fn step_without_owner(progress: &TaskStopProgress, task: &Task) -> StopStep {
        let can_end_here = true;
        next_stop_step(
            progress,
            StopLook {
                can_end_here,
                ..look(task)
            },
        )
    }

    /// All combinations of progress at this version.
    fn every_progress() -> impl Iterator<Item = TaskStopProgress> {
        (0..8).map(|bits: u8| TaskStopProgress {
            has_seen_it_open: bits & 1 > 0,
            is_woken: bits & 2 > 0,
            has_requested: bits & 4 > 0,
            version: Version(9),
        })
    }

    #[test]
    fn end_is_the_answer_unless_it_was_there_before() {
        for progress in every_progress() {
            let expected = if progress.has_seen_it_open {
                StopStep::Answer
            } else {
                StopStep::StopLeft
            };
            assert_eq!(step(&progress, &over()), expected, "{progress:?}");
        }
    }

    #[test]
    fn late_stop_is_promised_only_if_its_request_is_durable() {
        let late = |progress: &TaskStopProgress, task: &Task| {
            let is_late = true;
            next_stop_step(
                progress,
                StopLook {
                    is_late,
                    ..look(task)
                },
            )
        };
        for progress in every_progress() {
            for requested in [running_requested(), resting_requested()] {
                assert_eq!(late(&progress, &requested), StopStep::Report);
            }
            for open in [running(), resting()] {
                assert_eq!(late(&progress, &open), StopStep::GiveUp);
            }
        }
    }

    #[test]
    fn old_answer_decides_nothing() {
        let progress = TaskStopProgress {
            version: Version(10),
            has_requested: true,
            ..TaskStopProgress::default()
        };
        for task in [running(), resting(), running_requested()] {
            assert_eq!(step_without_owner(&progress, &task), StopStep::ReadAgain);
        }
    }

    #[test]
    fn task_without_an_owner_ends_here_if_it_rests_or_its_request_is_durable() {
        for progress in every_progress() {
            let ending = [resting(), resting_requested(), running_requested()];
            for task in ending.into_iter().chain([task_of([])]) {
                assert_eq!(step_without_owner(&progress, &task), StopStep::EndHere);
            }
            assert_ne!(step_without_owner(&progress, &running()), StopStep::EndHere);
        }
    }

    #[test]
    fn request_is_written_once_and_its_disappearance_is_a_refusal() {
        let mut progress = TaskStopProgress::default();
        assert_eq!(step(&progress, &running()), StopStep::RequestRunning);
        assert_eq!(step(&progress, &resting()), StopStep::RequestAtRest);
        progress.has_requested = true;
        assert_eq!(step(&progress, &resting()), StopStep::Refused);
    }

    #[test]
    fn request_of_another_stop_to_a_task_at_rest_gets_one_wake_up() {
        let mut progress = TaskStopProgress::default();
        let ask = |wakes| StopStep::Ask { wakes };
        assert_eq!(step(&progress, &running_requested()), ask(false));
        assert_eq!(step(&progress, &resting_requested()), ask(true));
        progress.is_woken = true;
        assert_eq!(step(&progress, &resting_requested()), ask(false));
    }
}
