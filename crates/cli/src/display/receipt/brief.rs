//! The items of a receipt in a few lines. An item is a piece of work that a stop found, such as a tool call. Items with
//! equal text share a line.

use allstop_core::Effect;
use allstop_core::counted::counted;
use allstop_core::elapsed::milliseconds;
use allstop_core::receipt::{EndMethod, ItemKind, ItemState, Millis, ReceiptItem};
use allstop_terminal::{Style, Styled, TextRole, styled};

use super::super::labels;
use super::row::{pids, sign};

/// Maximum lines, about as many as a reader can understand at once. If the items need more lines, the labels of the
/// calls are omitted, so more items have equal text.
const LINES_MAX: usize = 12;

/// Indent of the continuation lines of an item.
const INDENT: usize = 4;

/// Draws all items in at most `width` columns.
pub(super) fn draw(items: &[ReceiptItem], is_preview: bool, style: Style, width: usize) -> Styled {
    let mut lines = group(items, is_preview, true);
    if lines.len() > LINES_MAX {
        lines = group(items, is_preview, false);
    }
    let mut text = Styled::default();
    for line in &lines {
        line.draw(&mut text, style, width);
    }
    text
}

/// A line for one or more items with equal text.
struct BriefLine<'a> {
    first: &'a ReceiptItem,
    name: String,
    outcome: String,
    is_preview: bool,
    count: usize,
    /// Shortest and longest time until an item ended.
    times: Option<(Millis, Millis)>,
}

fn group(items: &[ReceiptItem], is_preview: bool, with_labels: bool) -> Vec<BriefLine<'_>> {
    let mut lines: Vec<BriefLine<'_>> = Vec::new();
    for item in items {
        let (name, outcome) = (name(item, with_labels), outcome(item, is_preview));
        let times = time(item).map(|time| (time, time));
        // Each item with running processes has a separate line, which contains its pids.
        let same = lines
            .iter_mut()
            .find(|line| item.processes.is_empty() && line.name == name && line.outcome == outcome);
        match same {
            Some(line) => {
                line.count += 1;
                line.times = match (line.times, times) {
                    (Some((min, max)), Some((time, _))) => Some((
                        if time < min { time } else { min },
                        if time > max { time } else { max },
                    )),
                    (either, other) => either.or(other),
                };
            }
            None => lines.push(BriefLine {
                first: item,
                name,
                outcome,
                is_preview,
                count: 1,
                times,
            }),
        }
    }
    lines
}

impl BriefLine<'_> {
    fn draw(&self, text: &mut Styled, style: Style, width: usize) {
        let (symbol, role) = sign(self.first, self.is_preview);
        let count = if self.count > 1 {
            format!("{} {} ", self.count, style.pick("×", "x"))
        } else {
            String::new()
        };
        let times = self.times.map_or(String::new(), |(min, max)| {
            let (least, most) = (shown(min), shown(max));
            if least == most {
                return format!(", {least}");
            }
            // If both times have the same unit, the unit is printed once.
            let (number, unit) = least.rsplit_once(' ').unwrap_or((&least, ""));
            let least = if most.ends_with(&format!(" {unit}")) {
                number
            } else {
                &least
            };
            format!(", {least}{}{most}", style.pick("–", "-"))
        });
        let loud = pids(self.first).map_or(String::new(), |pids| format!(" ({pids})"));
        let said = format!("{count}{} {}{loud}{times}", self.name, self.outcome);
        let room = width.saturating_sub(INDENT).max(INDENT);
        let is_loud = matches!(role, TextRole::Alarm);
        for (at, line) in styled![said].wrap(room).into_iter().enumerate() {
            let line = if is_loud {
                style.paint(role, line)
            } else {
                line
            };
            if at == 0 {
                let symbol = style.paint(role, style.symbol(symbol));
                text.push_line(&styled!["  ", symbol, " ", line]);
            } else {
                text.push_line(&styled![" ".repeat(INDENT), line]);
            }
        }
    }
}

/// Name of the work: the tool with the label of the call, or else the command or the agent.
pub(super) fn name(item: &ReceiptItem, with_label: bool) -> String {
    let label = item.label.as_deref().filter(|_| with_label);
    match (item.kind, label) {
        (ItemKind::Background, _) if item.id == item.name => item.name.to_string(),
        (ItemKind::Background, _) => format!("{} ({}):", item.name, item.id),
        (ItemKind::ModelCall, _) => format!("model {}:", item.name),
        (_, Some(label)) => format!("{}: {label} ·", item.name),
        (ItemKind::ToolCall, None) => format!("{}:", item.name),
        // The name already ends with the kind of the work, as for permission questions.
        (kind, None) if item.name.split(' ').next_back() == Some(labels::kind(kind)) => {
            format!("{}:", item.name)
        }
        (kind, None) => format!("{} {}:", labels::kind(kind), item.name),
    }
}

fn time(item: &ReceiptItem) -> Option<Millis> {
    match &item.state {
        ItemState::Stopped { after_ms, .. } => Some(*after_ms),
        _ => None,
    }
}

fn shown(time: Millis) -> String {
    let ms = time.as_f64();
    if (10.0..1_000.0).contains(&ms) {
        format!("{ms:.0} ms")
    } else {
        milliseconds(ms)
    }
}

/// Describes the end of an item, or the reason why it still runs.
fn outcome(item: &ReceiptItem, is_preview: bool) -> String {
    if let Some(reason) = item.waits_for {
        return labels::waits_for(reason).to_owned();
    }
    let mut said = match &item.state {
        ItemState::Finished { .. } => "finished by itself".to_owned(),
        ItemState::Stopped { how, .. } => stopped(*how).to_owned(),
        ItemState::Unknown { .. } => match item.effect {
            Some(Effect::Irreversible) | None => "outcome unknown",
            Some(_) => "outcome unknown, may be repeated",
        }
        .to_owned(),
        ItemState::StillRunning { .. } if item.state.is_outside_extent() => {
            "still runs, not covered by this stop".to_owned()
        }
        ItemState::StillRunning { .. } if is_preview => "runs".to_owned(),
        ItemState::StillRunning { why } => format!("STILL RUNS: {}", labels::why(*why)),
        ItemState::Unreachable { .. } if is_preview => {
            "does not answer: it is not known what runs; a stop would ask again".to_owned()
        }
        ItemState::Unreachable { why } => {
            format!("was asked to stop and MAY STILL RUN: {}", labels::why(*why))
        }
        ItemState::Refused { why } => format!("REFUSED: {}", labels::why(*why)),
    };
    if let Some(tokens @ 1..) = item.tokens_received_after_stop {
        said.push_str("; ");
        said.push_str(&counted(tokens, "token", "tokens"));
        said.push_str(" came after the stop");
    }
    if let Some(note) = &item.note {
        said.push_str("; ");
        said.push_str(note);
    }
    said
}

fn stopped(how: EndMethod) -> &'static str {
    match how {
        EndMethod::Acknowledged | EndMethod::Dropped => "stopped",
        EndMethod::ConnectionClosed => "stopped, connection closed",
        EndMethod::NotBegun => "never began",
        EndMethod::Sigterm => "stopped by SIGTERM",
        EndMethod::Sigkill => "stopped by SIGKILL",
        EndMethod::RemoteConfirmed => "stopped, confirmed by its server",
        EndMethod::Failed => "failed when it was asked to stop",
        EndMethod::OwnerDied => "ended with its process",
    }
}
