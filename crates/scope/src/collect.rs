//! Creates the items of receipts from the registries of all groups in the extent of a stop. A group is a set of scopes
//! that share one registry of work. The extent contains all scopes that the stop covers. A unit is a scope whose whole
//! work is one item, such as a tool call.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::Effect;
use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{
    EndMethod, ItemKind, ItemState, NotStoppedReason, ReceiptItem, WaitReason,
};
use tokio::time::Instant;

use crate::group::{EndedWork, ListedWork, Node, ReceiptScope, WorkEntry};
use crate::work::{Force, WorkSpec};

/// Items of the receipt of a stop. They are all work of the extent that was running when the stop was accepted.
pub(crate) fn items_of_stop(nodes: &[Node], accepted_at: Instant) -> Arc<[ReceiptItem]> {
    let mut collector = Collector::of(nodes.len());
    for node in nodes {
        node.list(|unit, listed| match listed {
            ListedWork::EndedCount(count) => collector.expect(unit, count),
            ListedWork::Ended(ended) => {
                // If work ended under an earlier stop of a smaller extent, a later stop of a larger extent does not
                // list it.
                if let Some(after) = ended.at.checked_duration_since(accepted_at) {
                    collector.add(
                        unit,
                        ended.seq,
                        &ended.spec,
                        WorkFinding::ended(ended, after),
                    );
                }
            }
            ListedWork::Running(entry) => {
                collector.add(unit, entry.seq, &entry.spec, WorkFinding::running(entry));
            }
            ListedWork::Engine(seq, scope) => collector.add_engine(unit, scope, seq),
            // Adds nothing: either the stop has not reached this call yet, or the call is already recorded as ended.
            ListedWork::Waiting(_) => {}
        });
    }
    collector.finish()
}

/// Items that run now in a scope and below it. Engines (the tasks that drive turns) are not included, because they are
/// not work of the scope.
pub(crate) fn items_running(scope: &Node) -> Vec<ReceiptItem> {
    list_running(scope, |_, _, _, _| {})
}

/// Like [`items_running`], but also lists the engines that have not acknowledged a stop.
pub(crate) fn items_left(scope: &Node) -> Vec<ReceiptItem> {
    list_running(scope, Collector::add_engine)
}

fn list_running(
    scope: &Node,
    mut engine: impl FnMut(&mut Collector, Option<&Arc<ReceiptScope>>, &Arc<str>, u64),
) -> Vec<ReceiptItem> {
    let mut collector = Collector::of(0);
    let mut nodes = vec![scope.clone()];
    while let Some(node) = nodes.pop() {
        nodes.extend(node.children());
        node.list(|unit, listed| match listed {
            ListedWork::Running(entry) => {
                collector.add(unit, entry.seq, &entry.spec, WorkFinding::running(entry));
            }
            ListedWork::Waiting(waiting) => {
                collector.add(
                    unit,
                    waiting.seq,
                    &waiting.spec,
                    WorkFinding::waiting(waiting),
                );
            }
            ListedWork::Engine(seq, scope) => engine(&mut collector, unit, scope, seq),
            ListedWork::Ended(_) | ListedWork::EndedCount(_) => {}
        });
    }
    collector.finish()
}

/// Collects items in the order in which their work was registered. All findings about one unit form one item.
struct Collector {
    flat: Vec<(u64, Option<ReceiptItem>)>,
    /// Findings in the order in which they were listed. Each finding has its unit.
    findings: Vec<(Arc<ReceiptScope>, WorkFinding)>,
}

/// Information about one piece of work, which becomes an item or a part of an item.
struct WorkFinding {
    state: ItemState,
    is_process: bool,
    containment: Option<allstop_core::receipt::Containment>,
    processes: Vec<ProcessIdentity>,
    tokens_received_after_stop: Option<u64>,
    note: Option<Cow<'static, str>>,
    waits_for: Option<WaitReason>,
}

impl WorkFinding {
    fn ended(ended: &EndedWork, after: Duration) -> Self {
        let details = ended.details.as_deref();
        Self {
            state: ended.state(after),
            is_process: ended.spec.kind == ItemKind::Process,
            containment: details.and_then(|details| details.containment),
            processes: Vec::new(),
            tokens_received_after_stop: details
                .and_then(|details| details.tokens_received_after_stop),
            note: details.and_then(|details| details.note.clone()),
            waits_for: None,
        }
    }

    fn running(entry: &WorkEntry) -> Self {
        let (containment, processes) = match &entry.force {
            Force::Process(process) => (
                Some(process.containment()),
                // The members of the process tree at its last examination. The group is locked here, so this code does
                // not query the system.
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
            note: matches!(entry.force, Force::Thread).then(|| thread_note(&entry.spec)),
            waits_for: None,
        }
    }

    /// Finding about a call that has not begun. The state is the state of a running future, and a note is added. If the
    /// call waits for a permission, this reason takes the place of the note.
    fn waiting(call: &ReceiptScope) -> Self {
        let waits_for = call.waits_for();
        Self {
            note: waits_for.is_none().then(|| "it had not begun".into()),
            waits_for,
            ..Self::still_running(NotStoppedReason::BlocksItsThread)
        }
    }

    fn still_running(why: NotStoppedReason) -> Self {
        Self {
            state: ItemState::StillRunning { why },
            is_process: false,
            containment: None,
            processes: Vec::new(),
            tokens_received_after_stop: None,
            note: None,
            waits_for: None,
        }
    }
}

/// Rank of a state. The state of a unit is the worst state of its work. If a process and a future have equally bad
/// states, the state of the process is used. The state of the process is more precise than the state of the future that
/// waited for it.
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
    /// A collector with reserved space for the units of about this number of groups.
    fn of(nodes: usize) -> Self {
        Self {
            flat: Vec::new(),
            findings: Vec::with_capacity(nodes),
        }
    }

    /// Reserves space for this number of pieces of work in one group.
    fn expect(&mut self, unit: Option<&Arc<ReceiptScope>>, work: usize) {
        if unit.is_none() {
            self.flat.reserve(work);
        }
    }

    /// Adds an engine that has not acknowledged the stop.
    fn add_engine(&mut self, unit: Option<&Arc<ReceiptScope>>, scope: &Arc<str>, seq: u64) {
        let spec = WorkSpec::new(ItemKind::Engine, Arc::clone(scope));
        self.add(
            unit,
            seq,
            &spec,
            WorkFinding::still_running(NotStoppedReason::NotAcknowledged),
        );
    }

    fn add(
        &mut self,
        unit: Option<&Arc<ReceiptScope>>,
        seq: u64,
        spec: &WorkSpec,
        finding: WorkFinding,
    ) {
        if let Some(unit) = unit {
            self.findings.push((Arc::clone(unit), finding));
            return;
        }
        let mut item = finding.item(spec, spec.item_id(seq));
        finding.describe(&mut item);
        hide_uncertain_outcome(&mut item, false);
        self.flat.push((seq, Some(item)));
    }

    fn finish<C: FromIterator<ReceiptItem>>(self) -> C {
        let Self {
            mut flat,
            mut findings,
        } = self;
        // The sort is stable, so the findings of one unit keep their order.
        findings.sort_by_key(|(unit, _)| unit.seq);
        for findings in findings.chunk_by_mut(|(one, _), (other, _)| one.seq == other.seq) {
            if let Some(((unit, first), others)) = findings.split_first_mut() {
                let item = item_of_unit(unit, first, others.iter().map(|(_, finding)| finding));
                flat.push((unit.seq, Some(item)));
            }
        }
        // Items are large, so this code sorts numbers first, and then moves each item once.
        let numbers = flat.iter().enumerate().map(|(at, (seq, _))| (*seq, at));
        let mut order: Vec<(u64, usize)> = numbers.collect();
        order.sort_unstable();
        let in_order = order.into_iter().map(|(_, at)| {
            let item = flat.get_mut(at).and_then(|(_, item)| item.take());
            item.expect("each place is in the order once")
        });
        in_order.collect()
    }
}

/// The single item of a unit. Its state is the worst state among the findings about the unit.
fn item_of_unit<'a>(
    unit: &ReceiptScope,
    first: &'a WorkFinding,
    others: impl Iterator<Item = &'a WorkFinding>,
) -> ReceiptItem {
    let mut item = first.item(&unit.spec, Arc::clone(&unit.path));
    first.describe(&mut item);
    let (mut worst, mut has_process) = (first, first.is_process);
    for finding in others {
        finding.describe(&mut item);
        // If two states are equally bad, the state of a process is used, unless an earlier finding was also about a
        // process.
        if (severity(&finding.state), finding.is_process) > (severity(&worst.state), has_process) {
            item.state = finding.state.clone();
            worst = finding;
        }
        has_process |= finding.is_process;
    }
    hide_uncertain_outcome(&mut item, has_process);
    item
}

impl WorkFinding {
    /// The item for this finding alone.
    fn item(&self, spec: &WorkSpec, id: Arc<str>) -> ReceiptItem {
        ReceiptItem {
            label: spec.label.clone(),
            effect: spec.effect,
            ..ReceiptItem::new(spec.kind, id, Arc::clone(&spec.name), self.state.clone())
        }
    }

    fn describe(&self, item: &mut ReceiptItem) {
        item.waits_for = item.waits_for.or(self.waits_for);
        item.containment = item.containment.or(self.containment);
        item.processes.extend(self.processes.iter().cloned());
        item.tokens_received_after_stop = item
            .tokens_received_after_stop
            .or(self.tokens_received_after_stop);
        if item.note.is_none() {
            item.note.clone_from(&self.note);
        }
    }
}

/// Note on a running thread. In a unit, only the note names the thread, because the item has the name of the unit.
fn thread_note(spec: &WorkSpec) -> Cow<'static, str> {
    let name = &spec.name;
    format!("the thread `{name}` cannot be forced; it never delays the exit").into()
}

/// Changes `stopped` to `unknown` if a tool's future was dropped or failed, and the call cannot be repeated safely. The
/// future has verifiably ended, but its effect may have happened. A unit with a process is not changed, because
/// processes are reported separately.
fn hide_uncertain_outcome(item: &mut ReceiptItem, has_process: bool) {
    let repeatable = item.effect.is_none_or(Effect::may_repeat);
    if let ItemState::Stopped {
        how: how @ (EndMethod::Dropped | EndMethod::Failed),
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
