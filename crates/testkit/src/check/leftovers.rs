//! No stopped work remains: in the scopes, on the machine, or at the server of a connection.

use allstop_core::Extent;
use allstop_core::receipt::ItemKind;

use crate::observe::RunObservation;

/// After the final stop nothing is alive: no task, no scope with work, no process, and no part of the agent (invariant
/// 1 in `violation.rs`).
pub(super) fn nothing_lives_on(run: &RunObservation) -> Result<(), String> {
    let mut left = run.work_left.clone();
    let living = run.notes.work.iter().filter(|work| work.ended.is_none());
    left.extend(living.map(ToString::to_string));
    if run.tasks_left > 0 {
        left.push(format!(
            "{} tasks that no scope knows: spawn in the call's scope, not with tokio::spawn",
            run.tasks_left
        ));
    }
    if left.is_empty() {
        return Ok(());
    }
    Err(format!(
        "still there when all was stopped: {}",
        left.join(", ")
    ))
}

/// Code of a run may start a real process with `std::process`, outside its scope. After the run, no such process
/// remains (invariant 1).
pub(super) fn no_child_is_left(run: &RunObservation) -> Result<(), String> {
    if run.processes_left.is_empty() {
        return Ok(());
    }
    Err(format!(
        "started, and neither ended nor waited for when all was stopped: process {}. No stop reaches a process that \
         std::process starts: start it in the call's scope. The test has killed it",
        run.processes_left.join(", ")
    ))
}

/// If the receipt of a stop is quiet (reports that no covered work runs), no work that the stop covers still runs. If
/// no process runs, the receipt is quiet. A stop of a turn may leave background work running if the receipt names this
/// work.
pub(super) fn quiet_is_quiet(run: &RunObservation) -> Result<(), String> {
    for snapshot in &run.snapshots {
        // If the target of a stop had already ended, the receipt makes no claim about running work.
        let Some(receipt) = snapshot
            .receipt
            .as_ref()
            .filter(|it| it.outcome().is_none())
        else {
            continue;
        };
        let names_background = receipt
            .items()
            .iter()
            .any(|item| item.kind == ItemKind::Background && item.state.breaks_quiet());
        let is_let_alone = snapshot.extent == Extent::Turn && names_background;
        let background = snapshot.background.iter().filter(|_| !is_let_alone);
        let running = snapshot.running.iter().chain(background).next();
        if let Some(line) = running
            && receipt.quiet()
        {
            let extent = snapshot.extent;
            return Err(format!(
                "the receipt of the {extent} says quiet while this runs: {line}"
            ));
        }
        if !receipt.quiet() && snapshot.running.is_empty() && snapshot.background.is_empty() {
            return Err(format!(
                "nothing runs, and the receipt is not quiet: {:?}",
                receipt.items()
            ));
        }
    }
    Ok(())
}

/// If a receipt reports a model call as stopped, the call has no open connection at the server.
pub(super) fn stopped_calls_are_closed(run: &RunObservation) -> Result<(), String> {
    match run
        .snapshots
        .iter()
        .find(|snapshot| snapshot.connections > 0)
    {
        Some(snapshot) => Err(format!(
            "a model call is stopped, and {} connections are open",
            snapshot.connections
        )),
        None => Ok(()),
    }
}
