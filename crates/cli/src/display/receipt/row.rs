//! One item (piece of work) of a receipt, as a branch of the tree in the full view.

use allstop_core::Effect;
use allstop_core::counted::counted;
use allstop_core::elapsed::milliseconds;
use allstop_core::receipt::{ItemState, NotStoppedReason, ReceiptItem};
use allstop_terminal::{Style, Styled, Symbol, TextRole, styled};

use super::super::labels;

/// Maximum columns of a name. A longer command is cut; the id in the same row identifies it.
const NAME_COLUMNS: usize = 36;
/// Minimum columns for the details of an item. With fewer columns, each line would contain only one word.
const DETAIL_COLUMNS_MIN: usize = 24;

/// One item, split into cells.
pub(super) struct Row {
    symbol: &'static str,
    role: TextRole,
    state: Styled,
    kind: Styled,
    name: Styled,
    id: Styled,
    time: Styled,
    detail: Styled,
    /// Warning that must be visible even if the details are skipped.
    loud: Option<Styled>,
}

/// Widths of the cells.
pub(super) struct Columns {
    state: usize,
    kind: usize,
    name: usize,
    id: usize,
    time: usize,
}

impl Columns {
    pub(super) fn of(rows: &[Row]) -> Self {
        let widest = |cell: fn(&Row) -> &Styled| {
            let widths = rows.iter().map(|row| cell(row).width());
            widths.max().unwrap_or_default()
        };
        Self {
            state: widest(|row| &row.state),
            kind: widest(|row| &row.kind),
            name: widest(|row| &row.name),
            id: widest(|row| &row.id),
            time: widest(|row| &row.time),
        }
    }
}

impl Row {
    pub(super) fn of(item: &ReceiptItem, preview: bool, style: Style) -> Self {
        let (symbol, role) = sign(item, preview);
        let name = styled![item.name].cut(NAME_COLUMNS, style.pick("…", "..."));
        let time = match &item.state {
            ItemState::Finished { after_ms } | ItemState::Unknown { after_ms, .. } => *after_ms,
            ItemState::Stopped { after_ms, .. } => Some(*after_ms),
            _ => None,
        };
        // An id that is equal to the name is omitted. Such an item has only one designation, which is both its id and
        // its name.
        let id = styled![item.id];
        Self {
            symbol: style.symbol(symbol),
            role,
            state: styled![labels::state(item)],
            kind: styled![labels::kind(item.kind)],
            id: if id == name { Styled::default() } else { id },
            name,
            time: time.map_or(Styled::default(), |ms| milliseconds(ms.as_f64()).into()),
            detail: styled![detail(item, preview)],
            loud: pids(item).map(Styled::from),
        }
    }

    pub(super) fn draw(&self, columns: &Columns, last: bool, style: Style, width: usize) -> Styled {
        let branch = match (style.is_unicode(), last) {
            (true, false) => "├─ ",
            (true, true) => "└─ ",
            (false, false) => "|- ",
            (false, true) => "`- ",
        };
        let trunk = if last {
            "   "
        } else {
            style.pick("│  ", "|  ")
        };
        let cells = styled![
            "  ",
            self.kind.pad(columns.kind),
            "  ",
            self.name.pad(columns.name),
            "  ",
            self.id.pad(columns.id),
            "  ",
            self.time.pad_start(columns.time)
        ];
        let state = styled![self.symbol, " ", self.state.pad(columns.state)];
        let used = 3 + state.width() + cells.width() + 2;
        let state = style.paint(self.role, state);
        // The details follow the cells if there is room for them. Otherwise they stand below the cells.
        let room = width.saturating_sub(used);
        let (below, room) = if room < DETAIL_COLUMNS_MIN {
            (true, width.saturating_sub(7).max(DETAIL_COLUMNS_MIN))
        } else {
            (false, room)
        };
        let details = self.detail.wrap(room);
        let louds = self.loud.as_ref().map(|loud| loud.wrap(room));
        let mut details = louds
            .into_iter()
            .flatten()
            .map(|line| style.paint(TextRole::Alarm, line))
            .chain(details);
        let first = if below { None } else { details.next() };
        let indent = if below { 4 } else { used - 3 };
        let mut text = Styled::default();
        let line = styled![branch, state, cells, "  ", first.unwrap_or_default()];
        text.push_line(&line.trim_end());
        for line in details {
            text.push_line(&styled![trunk, " ".repeat(indent), line]);
        }
        text
    }
}

/// Symbol and colour of the state of an item.
pub(super) fn sign(item: &ReceiptItem, is_preview: bool) -> (Symbol, TextRole) {
    if item.waits_for.is_some() {
        return (Symbol::Unknown, TextRole::Warning);
    }
    match &item.state {
        ItemState::Finished { .. } => (Symbol::Finished, TextRole::Dim),
        ItemState::Stopped { .. } => (Symbol::Good, TextRole::Good),
        ItemState::Unknown { .. } => (Symbol::Unknown, TextRole::Warning),
        ItemState::StillRunning {
            why: NotStoppedReason::OutsideExtent,
        } => (Symbol::Running, TextRole::Warning),
        ItemState::StillRunning { .. } if is_preview => (Symbol::Running, TextRole::Warning),
        ItemState::Unreachable { .. } if is_preview => (Symbol::Unknown, TextRole::Warning),
        ItemState::StillRunning { .. }
        | ItemState::Unreachable { .. }
        | ItemState::Refused { .. } => (Symbol::Bad, TextRole::Alarm),
    }
}

/// Pids of the item's processes that are known to run; `None` without such processes.
pub(super) fn pids(item: &ReceiptItem) -> Option<String> {
    let pids: Vec<_> = item.processes.iter().map(|p| p.pid.to_string()).collect();
    match pids.as_slice() {
        [] => None,
        [pid] => Some(format!("pid {pid}")),
        _ => Some(format!("pids {}", pids.join(", "))),
    }
}

/// Details of an item's state, including the proof of its end.
fn detail(item: &ReceiptItem, preview: bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    match &item.state {
        _ if item.waits_for.is_some() => parts.push("no effect yet".to_owned()),
        ItemState::Finished { .. } => parts.push("by itself".to_owned()),
        ItemState::Stopped { how, evidence, .. } => {
            parts.push(labels::how(*how).to_owned());
            if let Some(proof) = evidence.proof() {
                parts.push(format!("verified: {}", labels::verified(proof)));
            }
            if let Some(checkpoint) = evidence.checkpoint() {
                parts.push(format!("acknowledged at {checkpoint}"));
            }
        }
        ItemState::Unknown { how, .. } => parts.push(labels::how(*how).to_owned()),
        ItemState::StillRunning { .. } if preview && !item.state.is_outside_extent() => {}
        ItemState::StillRunning { why }
        | ItemState::Unreachable { why }
        | ItemState::Refused { why } => parts.push(labels::why(*why).to_owned()),
    }
    if matches!(item.state, ItemState::Unknown { .. }) {
        let effect = item.effect.map(effect);
        parts.extend(effect.map(str::to_owned));
    }
    if let Some(containment) = item.containment {
        parts.push(format!(
            "contained by {}",
            labels::plain(containment.as_str())
        ));
    }
    if let Some(tokens) = item.tokens_received_after_stop {
        parts.push(format!(
            "{} after the stop",
            counted(tokens, "token", "tokens")
        ));
    }
    parts.extend(item.note.as_deref().map(str::to_owned));
    parts.join("; ")
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::ReadOnly => "read-only",
        Effect::Idempotent => "idempotent",
        Effect::Compensatable => "compensatable",
        Effect::Irreversible => "irreversible",
    }
}
