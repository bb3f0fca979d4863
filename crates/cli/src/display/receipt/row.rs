//! One item of a receipt, as a branch of the tree.

use std::fmt::Write as _;

use allstop_core::Effect;
use allstop_core::receipt::{ItemState, ReceiptItem};

use super::super::style::{Role, Style, Symbol};
use super::super::{escape, table, words};
use super::is_outside;

/// Columns that a name may take: a command longer than that is told apart by its id.
const NAME_COLUMNS: usize = 36;
/// The least columns for what is known of an item: fewer are one word a line.
const DETAIL_COLUMNS_MIN: usize = 24;

/// One item, in cells.
pub(super) struct Row {
    symbol: &'static str,
    role: Role,
    state: String,
    kind: &'static str,
    name: String,
    id: String,
    time: String,
    detail: String,
    /// What must be seen even where the rest is not read.
    loud: Option<String>,
}

/// How wide the cells are.
pub(super) struct Columns {
    state: usize,
    kind: usize,
    name: usize,
    id: usize,
    time: usize,
}

impl Columns {
    pub(super) fn of(rows: &[Row]) -> Self {
        let widest = |cell: fn(&Row) -> &str| {
            let widths = rows.iter().map(|row| table::width(cell(row)));
            widths.max().unwrap_or_default()
        };
        Self {
            state: widest(|row| &row.state),
            kind: widest(|row| row.kind),
            name: widest(|row| &row.name),
            id: widest(|row| &row.id),
            time: widest(|row| &row.time),
        }
    }
}

impl Row {
    pub(super) fn of(item: &ReceiptItem, preview: bool, style: Style) -> Self {
        let (symbol, role) = match &item.state {
            ItemState::Finished { .. } => (Symbol::Finished, Role::Dim),
            ItemState::Stopped { .. } => (Symbol::Good, Role::Good),
            ItemState::Unknown { .. } => (Symbol::Unknown, Role::Warning),
            ItemState::StillRunning { .. } if preview || is_outside(item) => {
                (Symbol::Running, Role::Warning)
            }
            ItemState::StillRunning { .. }
            | ItemState::Unreachable { .. }
            | ItemState::Refused { .. } => (Symbol::Bad, Role::Alarm),
        };
        let name = escape::line(&item.name);
        let name = table::cut(&name, NAME_COLUMNS, style.pick("…", "...")).into_owned();
        let time = match &item.state {
            ItemState::Finished { after_ms } | ItemState::Unknown { after_ms, .. } => *after_ms,
            ItemState::Stopped { after_ms, .. } => Some(*after_ms),
            _ => None,
        };
        // The same word twice says nothing: an item without an id of its own is often named for itself.
        let id = escape::line(&item.id).into_owned();
        Self {
            symbol: style.symbol(symbol),
            role,
            state: words::plain(item.state.as_str()),
            kind: words::kind(item.kind),
            id: if id == name { String::new() } else { id },
            name,
            time: time.map_or(String::new(), |ms| words::milliseconds(ms.as_f64())),
            detail: detail(item, preview),
            loud: pids(item),
        }
    }

    pub(super) fn draw(&self, columns: &Columns, last: bool, style: Style, width: usize) -> String {
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
        let cells = format!(
            "  {}  {}  {}  {:>time$}",
            table::pad(self.kind, columns.kind),
            table::pad(&self.name, columns.name),
            table::pad(&self.id, columns.id),
            self.time,
            time = columns.time
        );
        let state = format!("{} {}", self.symbol, table::pad(&self.state, columns.state));
        let used = 3 + table::width(&state) + table::width(&cells) + 2;
        let state = style.paint(self.role, &state);
        // Behind the cells if there is room, else below.
        let room = width.saturating_sub(used);
        let (below, room) = if room < DETAIL_COLUMNS_MIN {
            (true, width.saturating_sub(7).max(DETAIL_COLUMNS_MIN))
        } else {
            (false, room)
        };
        let details = table::wrap(&self.detail, room);
        let louds = self.loud.as_deref().map(|loud| table::wrap(loud, room));
        let mut details = louds
            .into_iter()
            .flatten()
            .map(|line| style.paint(Role::Alarm, &line))
            .chain(details);
        let first = if below { None } else { details.next() };
        let indent = if below { 4 } else { used - 3 };
        let mut text = format!("{branch}{state}{cells}  {}", first.unwrap_or_default());
        text.truncate(text.trim_end().len());
        text.push('\n');
        for line in details {
            let _ = writeln!(text, "{trunk}{:indent$}{line}", "");
        }
        text
    }
}

/// The processes that are known to run.
fn pids(item: &ReceiptItem) -> Option<String> {
    let pids: Vec<_> = item.processes.iter().map(|p| p.pid.to_string()).collect();
    match pids.as_slice() {
        [] => None,
        [pid] => Some(format!("pid {pid}")),
        _ => Some(format!("pids {}", pids.join(", "))),
    }
}

/// What is known of an item, and how.
fn detail(item: &ReceiptItem, preview: bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    match &item.state {
        ItemState::Finished { .. } => parts.push("by itself".to_owned()),
        ItemState::Stopped { how, evidence, .. } => {
            parts.push(words::how(*how).to_owned());
            if let Some(proof) = evidence.proof() {
                parts.push(format!("verified: {}", words::verified(proof)));
            }
            if let Some(checkpoint) = evidence.checkpoint() {
                parts.push(format!("acknowledged at {checkpoint}"));
            }
        }
        ItemState::Unknown { how, .. } => parts.push(words::how(*how).to_owned()),
        ItemState::StillRunning { .. } if preview && !is_outside(item) => {}
        ItemState::StillRunning { why }
        | ItemState::Unreachable { why }
        | ItemState::Refused { why } => parts.push(words::why(*why).to_owned()),
    }
    if matches!(item.state, ItemState::Unknown { .. }) {
        let effect = item.effect.map(effect);
        parts.extend(effect.map(str::to_owned));
    }
    if let Some(containment) = item.containment {
        parts.push(format!(
            "contained by {}",
            words::plain(containment.as_str())
        ));
    }
    if let Some(tokens) = item.tokens_received_after_stop {
        parts.push(format!("{tokens} tokens after the stop"));
    }
    parts.extend(item.note.as_deref().map(str::to_owned));
    escape::line(&parts.join("; ")).into_owned()
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::ReadOnly => "read-only",
        Effect::Idempotent => "idempotent",
        Effect::Compensatable => "compensatable",
        Effect::Irreversible => "irreversible",
    }
}
