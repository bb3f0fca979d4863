//! A receipt as a tree for people.
//!
//! What still runs stands out, with its pids. Nothing is said that the receipt does not say.

use std::fmt::Write as _;

use allstop_core::Receipt;
use allstop_core::receipt::{ConversationEffect, ItemState, ReceiptItem, StopOutcome, Why};

use super::style::{Role, Style, Symbol};
use super::{escape, table, words};

/// Columns of a receipt that is written where there is no terminal to ask.
pub(crate) const RECEIPT_WIDTH_DEFAULT: usize = 100;
/// Columns that a name may take: a command longer than that is told apart by its id.
const NAME_COLUMNS: usize = 36;
/// The least columns for what is known of an item: fewer are one word a line.
const DETAIL_COLUMNS_MIN: usize = 24;

/// Draws a receipt in so many columns. It ends with an end of line.
pub(crate) fn render_receipt(receipt: &Receipt, style: Style, width: usize) -> String {
    let mut text = headline(receipt, style);
    text.push_str(&verdict(receipt, style));
    let items = receipt.items();
    let rows: Vec<Row> = items
        .iter()
        .map(|item| Row::of(item, receipt.is_preview(), style))
        .collect();
    let columns = Columns::of(&rows);
    for (at, row) in rows.iter().enumerate() {
        text.push_str(&row.draw(&columns, at + 1 == rows.len(), style, width));
    }
    text.push_str(&footer(receipt, style));
    text
}

fn headline(receipt: &Receipt, style: Style) -> String {
    let request = receipt.request();
    let target = escape::line(&request.target).into_owned();
    let verb = match (receipt.outcome(), receipt.is_preview()) {
        (Some(_), _) => "Nothing to stop:",
        (None, true) => "Would stop",
        (None, false) => "Stopped",
    };
    let what = match receipt.outcome() {
        Some(StopOutcome::AlreadyEnded) => format!("{target} had already ended"),
        Some(StopOutcome::NotFound) => format!("there is no {target}"),
        None => target,
    };
    let by = request.cause.by.as_ref();
    let by = by.map_or(String::new(), |by| format!(", by {by}"));
    let about = format!(
        " {} {}, cause {}{by}",
        style.pick("·", "-"),
        words::plain(request.extent.as_str()),
        request.cause
    );
    format!(
        "{} {what}{}\n",
        style.paint(Role::Strong, verb),
        style.paint(Role::Dim, &escape::line(&about))
    )
}

fn verdict(receipt: &Receipt, style: Style) -> String {
    if receipt.outcome().is_some() || receipt.is_preview() {
        return String::new();
    }
    // Where something is left, no acknowledgement says nothing about the engine.
    let observed = match (receipt.cancel_observed(), receipt.quiet()) {
        (true, _) => ", acknowledged by the engine",
        (false, true) => ", not acknowledged by the engine",
        (false, false) => "",
    };
    let observed = style.paint(Role::Dim, observed);
    if receipt.quiet() {
        let after = receipt.quiet_after_ms();
        let after = after.map_or(String::new(), |ms| {
            format!(" after {}", words::milliseconds(ms.as_f64()))
        });
        let said = format!("{} quiet{after}", style.symbol(Symbol::Good));
        return format!("{}{observed}\n", style.paint(Role::Good, &said));
    }
    let left = receipt.items().iter().filter(|item| is_left(item)).count();
    let loud = style.paint(
        Role::Alarm,
        &format!("{} NOT QUIET", style.symbol(Symbol::Bad)),
    );
    let all = receipt.items().len();
    format!("{loud} {left} of {all} not stopped{observed}\n")
}

/// Whether an item keeps its receipt from being quiet.
fn is_left(item: &ReceiptItem) -> bool {
    item.state.breaks_quiet() && !is_outside(item)
}

fn is_outside(item: &ReceiptItem) -> bool {
    matches!(
        item.state,
        ItemState::StillRunning {
            why: Why::OutsideExtent
        }
    )
}

fn footer(receipt: &Receipt, style: Style) -> String {
    if receipt.is_preview() || receipt.outcome().is_some() {
        return String::new();
    }
    let conversation = match receipt.conversation() {
        ConversationEffect::Unchanged => "conversation unchanged",
        ConversationEffect::KeptCompletedSteps => "conversation keeps the completed steps",
    };
    let usage = receipt.usage();
    let estimated = if usage.estimated { " (estimated)" } else { "" };
    let said = format!(
        "{conversation} {} {} tokens in, {} out{estimated}",
        style.pick("·", "-"),
        usage.input_tokens,
        usage.output_tokens
    );
    format!("{}\n", style.paint(Role::Dim, &said))
}

/// One item, in cells.
struct Row {
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
struct Columns {
    state: usize,
    kind: usize,
    name: usize,
    id: usize,
    time: usize,
}

impl Columns {
    fn of(rows: &[Row]) -> Self {
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
    fn of(item: &ReceiptItem, preview: bool, style: Style) -> Self {
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

    fn draw(&self, columns: &Columns, last: bool, style: Style, width: usize) -> String {
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
        ItemState::StillRunning { .. } if preview => {}
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

fn effect(effect: allstop_core::Effect) -> &'static str {
    use allstop_core::Effect;
    match effect {
        Effect::ReadOnly => "read-only",
        Effect::Idempotent => "idempotent",
        Effect::Compensatable => "compensatable",
        Effect::Irreversible => "irreversible",
    }
}

#[cfg(test)]
mod tests;
