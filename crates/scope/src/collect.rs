//! From the registries of a stopped extent to the items of its receipt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::Effect;
use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{How, ItemKind, ItemState, ReceiptItem, Why};
use tokio::time::Instant;

use crate::node::{Listed, Node};
use crate::work::{EndedWork, Force, WorkEntry, WorkSpec};

/// What the receipt of a stop lists: everything in its extent that ran when it was accepted.
pub(crate) fn items_of_stop(nodes: &[Arc<Node>], accepted_at: Instant) -> Vec<ReceiptItem> {
    let mut collector = Collector::default();
    for node in nodes {
        node.list(|listed| match listed {
            Listed::Ended(ended) => {
                // A wider stop that came later does not list what ended under the narrower one before it.
                if let Some(after) = ended.at.checked_duration_since(accepted_at) {
                    collector.add(node, ended.seq, &ended.spec, Part::ended(ended, after));
                }
            }
            Listed::Running(entry) => {
                collector.add(node, entry.seq, &entry.spec, Part::running(entry));
            }
            Listed::Engine(seq) => collector.add_engine(node, seq),
            // The stop has not reached it yet, or has made an end of it.
            Listed::Waiting(_) => {}
        });
    }
    collector.finish()
}

/// What runs in a scope and below it, now. An engine is no work: it answers for the work.
pub(crate) fn items_running(scope: &Arc<Node>) -> Vec<ReceiptItem> {
    list_running(scope, |_, _, _| {})
}

/// The same, with the engines that have not acknowledged a stop.
pub(crate) fn items_left(scope: &Arc<Node>) -> Vec<ReceiptItem> {
    list_running(scope, Collector::add_engine)
}

fn list_running(
    scope: &Arc<Node>,
    mut engine: impl FnMut(&mut Collector, &Node, u64),
) -> Vec<ReceiptItem> {
    let mut collector = Collector::default();
    let mut nodes = vec![Arc::clone(scope)];
    while let Some(node) = nodes.pop() {
        nodes.extend(node.children());
        node.list(|listed| match listed {
            Listed::Running(entry) => {
                collector.add(&node, entry.seq, &entry.spec, Part::running(entry));
            }
            Listed::Waiting(unit) => {
                collector.add(&node, unit.seq, &unit.spec, Part::waiting());
            }
            Listed::Engine(seq) => engine(&mut collector, &node, seq),
            Listed::Ended(_) => {}
        });
    }
    collector.finish()
}

/// Items by the order in which their work was registered. A unit's parts fall on one item.
#[derive(Default)]
struct Collector {
    flat: Vec<(u64, ReceiptItem)>,
    units: BTreeMap<u64, (ReceiptItem, Part)>,
}

/// What one piece of work adds to an item.
struct Part {
    state: ItemState,
    is_process: bool,
    containment: Option<allstop_core::receipt::Containment>,
    processes: Vec<ProcessIdentity>,
    tokens_received_after_stop: Option<u64>,
    note: Option<std::borrow::Cow<'static, str>>,
}

impl Part {
    fn ended(ended: &EndedWork, after: Duration) -> Self {
        Self {
            state: ended.state(after),
            is_process: ended.spec.kind == ItemKind::Process,
            containment: ended.details.containment,
            processes: Vec::new(),
            tokens_received_after_stop: ended.details.tokens_received_after_stop,
            note: ended.details.note.clone(),
        }
    }

    fn running(entry: &WorkEntry) -> Self {
        let (containment, processes) = match &entry.force {
            Force::Process(process) => (
                Some(process.containment()),
                // As they were seen last: this is under the node's lock, and looks at nothing.
                process.known_members(),
            ),
            _ => (None, Vec::new()),
        };
        Self {
            state: entry.running_state(),
            is_process: matches!(entry.force, Force::Process(_)),
            containment,
            processes,
            tokens_received_after_stop: None,
            note: None,
        }
    }

    /// As a future that is there.
    fn waiting() -> Self {
        Self {
            note: Some("it has not begun".into()),
            ..Self::still_running(Why::BlocksItsThread)
        }
    }

    fn still_running(why: Why) -> Self {
        Self {
            state: ItemState::StillRunning { why },
            is_process: false,
            containment: None,
            processes: Vec::new(),
            tokens_received_after_stop: None,
            note: None,
        }
    }

    /// Which of two states a unit is in: the worse one. Of two alike the process speaks: what became of the child is
    /// more than what became of the future that waited for it.
    fn outranks(&self, other: &Self) -> bool {
        (severity(&self.state), self.is_process) > (severity(&other.state), other.is_process)
    }
}

fn severity(state: &ItemState) -> u8 {
    match state {
        ItemState::Finished { .. } => 0,
        ItemState::Stopped { .. } => 1,
        ItemState::Unknown { .. } => 2,
        ItemState::Refused { .. } => 3,
        ItemState::Unreachable { .. } => 4,
        ItemState::StillRunning { .. } => 5,
    }
}

impl Collector {
    /// An engine that has not acknowledged the stop.
    fn add_engine(&mut self, node: &Node, seq: u64) {
        let spec = WorkSpec::new(ItemKind::Engine, Arc::clone(&node.label));
        self.add(node, seq, &spec, Part::still_running(Why::NotAcknowledged));
    }

    fn add(&mut self, node: &Node, seq: u64, spec: &WorkSpec, part: Part) {
        let Some(unit) = node.unit_above() else {
            let (id, name) = (spec.item_id(seq), Arc::clone(&spec.name));
            let mut item = ReceiptItem {
                effect: spec.effect,
                ..ReceiptItem::new(spec.kind, id, name, part.state.clone())
            };
            part.describe(&mut item);
            hide_uncertain_outcome(&mut item, false);
            self.flat.push((seq, item));
            return;
        };
        match self.units.entry(unit.seq) {
            std::collections::btree_map::Entry::Vacant(slot) => {
                let (id, name) = (Arc::clone(&unit.path), Arc::clone(&unit.spec.name));
                let mut item = ReceiptItem {
                    effect: unit.spec.effect,
                    ..ReceiptItem::new(unit.spec.kind, id, name, part.state.clone())
                };
                part.describe(&mut item);
                slot.insert((item, part));
            }
            std::collections::btree_map::Entry::Occupied(mut slot) => {
                let (item, worst) = slot.get_mut();
                part.describe(item);
                let either_is_process = worst.is_process || part.is_process;
                if part.outranks(worst) {
                    item.state = part.state.clone();
                    *worst = part;
                }
                worst.is_process = either_is_process;
            }
        }
    }

    fn finish(mut self) -> Vec<ReceiptItem> {
        for (seq, (mut item, worst)) in self.units {
            hide_uncertain_outcome(&mut item, worst.is_process);
            self.flat.push((seq, item));
        }
        self.flat.sort_unstable_by_key(|(seq, _)| *seq);
        self.flat.into_iter().map(|(_, item)| item).collect()
    }
}

impl Part {
    fn describe(&self, item: &mut ReceiptItem) {
        item.containment = item.containment.or(self.containment);
        item.processes.extend(self.processes.iter().cloned());
        item.tokens_received_after_stop = item
            .tokens_received_after_stop
            .or(self.tokens_received_after_stop);
        if item.note.is_none() {
            item.note.clone_from(&self.note);
        }
        if matches!(
            self.state,
            ItemState::StillRunning {
                why: Why::BlockingThread
            }
        ) && item.note.is_none()
        {
            item.note = Some("a thread cannot be forced; it never delays the exit".into());
        }
    }
}

/// A tool's future that was dropped has verifiably ended on our side, but what it had asked of the world may have
/// happened. Where repeating that does harm, the state is `unknown`. Processes are accounted for by themselves.
fn hide_uncertain_outcome(item: &mut ReceiptItem, has_process: bool) {
    let repeatable = item.effect.is_none_or(Effect::may_repeat);
    if let ItemState::Stopped {
        how: how @ (How::Dropped | How::Failed),
        after_ms,
        ..
    } = item.state
        && item.kind == ItemKind::ToolCall
        && !repeatable
        && !has_process
    {
        item.state = ItemState::Unknown {
            how,
            after_ms: Some(after_ms),
        };
        item.note
            .get_or_insert("may have completed; check before repeating".into());
    } else if !matches!(item.state, ItemState::Unknown { .. }) {
        item.effect = None;
    }
}
