//! One run of a scenario, stopped at one point by one method, or undisturbed.

use std::sync::Arc;

use allstop_core::StopReason;
use allstop_log::Log;

use super::turns::run_turns;
use super::{after, session};
use crate::observe::{Point, RunObservation, ToldNotebook};
use crate::stage::clockwork::{self, Tick};
use crate::stage::{ChildProcesses, Played, RunStage, Scenario, Setup};
use crate::stop_method::StopMethod;

/// One run of a scenario.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) log: Arc<dyn Log>,
    /// Point and method of the stop, if there is one.
    pub(crate) stop: Option<(&'a Point, StopMethod)>,
    /// Notebook for those who look after a kill.
    pub(crate) told: Option<Arc<ToldNotebook>>,
    /// The same run without a stop, if that is known.
    pub(crate) undisturbed: Option<Arc<RunObservation>>,
}

/// Plays a case. `None`: there was nothing at that point that could be stopped by that method.
pub(crate) fn play(case: &Case<'_>) -> Option<RunObservation> {
    let before = ChildProcesses::now();
    let played = clockwork::run(|tick| Box::pin(run(case, tick)));
    let processes_left = before.end_newer();
    Some(RunObservation {
        undisturbed: case.undisturbed.clone(),
        point: case.stop.map(|(point, _)| point.number),
        store_fault: match case.stop {
            Some((_, StopMethod::Store(fault))) => Some(fault),
            _ => None,
        },
        processes_left,
        ..played?
    })
}

async fn run(case: &Case<'_>, tick: Tick) -> Option<RunObservation> {
    let stage = RunStage::new();
    let Setup { play, next_ends } = case.scenario.build(&stage);
    let observed = match play {
        Played::Run { subject, prompts } => run_turns(case, tick, stage, &*subject, prompts).await,
        Played::Session(play) => session::run_session(case, tick, stage, play).await,
    };
    Some(RunObservation {
        next_must: next_ends,
        ..observed?
    })
}

/// Sends the next message to the session that a store holds.
pub(crate) fn play_next(scenario: &Scenario, log: &Arc<dyn Log>) -> Option<StopReason> {
    clockwork::run(|_| async {
        let stage = RunStage::new();
        match scenario.build(&stage).play {
            Played::Run { subject, .. } => after::next_of_run(&*subject, None, log).await,
            Played::Session(play) => session::next_of_store(&stage, play, log).await,
        }
    })
}
