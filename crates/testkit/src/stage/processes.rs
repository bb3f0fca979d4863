//! The simulated processes of a run. Each event of a process is a point, and the notes contain the beginning and the
//! end of each process.

use std::collections::BTreeMap;
use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_process::ProcessSignal;
use allstop_tools::BackgroundWork;
use parking_lot::Mutex;

use super::parts::PartWatch;
use crate::observe::Moment;
use crate::observe::{ObservedWork, WorkGuard};
use crate::{SimulatedSystem, SystemEventKind};

/// The simulated processes of a run.
#[derive(Debug)]
pub(crate) struct Processes {
    system: SimulatedSystem,
    /// Guards of the living trees, by the numbers of the trees.
    alive: Arc<Mutex<BTreeMap<usize, WorkGuard>>>,
}

impl Processes {
    pub(crate) fn new(watch: &PartWatch) -> Self {
        let system = SimulatedSystem::new();
        let alive: Arc<Mutex<BTreeMap<usize, WorkGuard>>> = Arc::default();
        let (watch, guards) = (watch.clone(), Arc::clone(&alive));
        system.observe(move |event| {
            match event.kind {
                SystemEventKind::Started { .. } => {
                    let guard = watch
                        .witness
                        .begin(ItemKind::Process, event.tree.to_string());
                    guards.lock().insert(event.tree, guard);
                }
                SystemEventKind::Emptied => drop(guards.lock().remove(&event.tree)),
                _ => {}
            }
            let name = event_name(&event.kind);
            watch
                .points
                .reach(Moment::After, name, Arc::clone(&event.command));
        });
        Self { system, alive }
    }

    pub(crate) fn system(&self) -> &SimulatedSystem {
        &self.system
    }

    /// Marks the recorded processes that were background work: a process tree that became background work gets the id
    /// of this work.
    pub(crate) fn name_background(
        &self,
        works: &[Arc<BackgroundWork>],
        observed: &mut [ObservedWork],
    ) {
        for tree in self.system.started() {
            let is_its = |work: &&Arc<BackgroundWork>| {
                work.process()
                    .is_some_and(|process| *process.handle().marker() == tree.marker)
            };
            let (number, Some(work)) = (tree.number.to_string(), works.iter().find(is_its)) else {
                continue;
            };
            let of_tree =
                |item: &&mut ObservedWork| item.kind == ItemKind::Process && *item.id == *number;
            if let Some(item) = observed.iter_mut().find(of_tree) {
                item.kind = ItemKind::Background;
                item.id = work.id.as_str().into();
            }
        }
    }

    /// Ends the notes of trees that ended while no driver (future that follows a tree) watched them. Only running trees
    /// then remain in the list.
    pub(crate) fn end_unwatched(&self) {
        let running = self.system.running();
        self.alive
            .lock()
            .retain(|number, _| running.iter().any(|tree| tree.number == *number));
    }
}

fn event_name(kind: &SystemEventKind) -> &'static str {
    match kind {
        SystemEventKind::Started { .. } => "process_started",
        SystemEventKind::Printed { .. } => "tool_output",
        SystemEventKind::Signalled(ProcessSignal::Term) => "sigterm",
        SystemEventKind::Signalled(ProcessSignal::Kill) => "sigkill",
        SystemEventKind::Ended { .. } => "process_ended",
        SystemEventKind::Emptied => "processes_gone",
    }
}
