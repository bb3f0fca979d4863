//! Receipts (reports of stops) as text: one sentence, and a line for each item of stopped or remaining work. The full
//! view has all details.
//!
//! Work that still runs is highlighted, with its pids. The text claims nothing that the receipt does not contain.

mod brief;
mod row;

use allstop_core::counted::{counted, grouped};
use allstop_core::receipt::{ConversationEffect, ReceiptItem};
use allstop_core::{CauseKind, Receipt};
use allstop_terminal::{Style, Styled, Symbol, TextRole, styled};

use self::row::{Columns, Row};
use super::labels;

/// Width of a receipt, in columns, if the output is not a terminal.
pub(crate) const RECEIPT_WIDTH_DEFAULT: usize = 100;

/// Minimum width of a receipt, in columns. With a smaller width, the text would be unreadable.
const COLUMNS_MIN: usize = 20;

/// True if a receipt is new to the user. The receipt of a turn that did not begin, because of a guardrail or a limit,
/// only repeats the reason. So does a receipt without work after a failure.
pub(crate) fn is_worth_showing(receipt: &Receipt) -> bool {
    if !receipt.items().is_empty() {
        return true;
    }
    match receipt.cause().kind {
        CauseKind::Failure => false,
        CauseKind::Guardrail | CauseKind::Budget | CauseKind::Deadline | CauseKind::Inactivity => {
            receipt.outcome().is_none()
        }
        _ => true,
    }
}

/// Draws the essential parts of a receipt, `width` columns wide. The text ends with a newline.
pub(crate) fn render_receipt(receipt: &Receipt, style: Style, width: usize) -> Styled {
    let width = width.max(COLUMNS_MIN);
    let mut text = headline(receipt, style, width);
    let items = brief::draw(receipt.items(), receipt.is_preview(), style, width);
    text.push(&items);
    text.push(&footer(receipt, style, width));
    text
}

/// Name of the work of an item, in one line.
pub(crate) fn work_line(item: &ReceiptItem) -> String {
    let name = brief::name(item, true);
    name.trim_end_matches([' ', '·', ':']).to_owned()
}

/// Draws all details of a receipt, `width` columns wide. The text ends with a newline.
pub(crate) fn render_full_receipt(receipt: &Receipt, style: Style, width: usize) -> Styled {
    let width = width.max(COLUMNS_MIN);
    let mut text = headline(receipt, style, width);
    let request = receipt.request();
    let by = request.cause.by.as_ref();
    let observed = if receipt.cancel_observed() && !receipt.is_of_crash() {
        ", acknowledged by the engine"
    } else {
        ""
    };
    let about = format!(
        "stop {} of {} ({}), cause {}{}{observed}",
        request.stop_id,
        request.target,
        labels::plain(request.extent.as_str()),
        request.cause,
        by.map_or(String::new(), |by| format!(", by {by}")),
    );
    push_wrapped(&mut text, &about, TextRole::Dim, style, width);
    let items = receipt.items();
    let rows: Vec<Row> = items
        .iter()
        .map(|item| Row::of(item, receipt.is_preview(), style))
        .collect();
    let columns = Columns::of(&rows);
    for (at, row) in rows.iter().enumerate() {
        text.push(&row.draw(&columns, at + 1 == rows.len(), style, width));
    }
    text.push(&footer(receipt, style, width));
    text
}

fn headline(receipt: &Receipt, style: Style, width: usize) -> Styled {
    let is_alarm = !receipt.quiet() && receipt.outcome().is_none() && !receipt.is_preview();
    let role = if is_alarm {
        TextRole::Alarm
    } else {
        TextRole::Strong
    };
    let symbol = match (receipt.outcome(), receipt.is_preview()) {
        (None, false) => format!("{} ", style.symbol(Symbol::Stopped)),
        _ => String::new(),
    };
    let said = format!("{symbol}{receipt}");
    let mut text = Styled::default();
    push_wrapped(&mut text, &said, role, style, width);
    text
}

fn push_wrapped(text: &mut Styled, said: &str, role: TextRole, style: Style, width: usize) {
    for line in styled![said].wrap(width) {
        text.push_line(&style.paint(role, line));
    }
}

fn footer(receipt: &Receipt, style: Style, width: usize) -> Styled {
    let mut text = Styled::default();
    if receipt.is_preview() || receipt.outcome().is_some() {
        return text;
    }
    let conversation = match receipt.conversation() {
        ConversationEffect::Unchanged => "conversation unchanged",
        ConversationEffect::Unknown => "not known yet whether the conversation changed",
        ConversationEffect::KeptCompletedSteps => "conversation keeps the completed steps",
    };
    let usage = receipt.usage();
    // No usage is shown if it is 0, as for the stop of background work or of one call.
    if usage.total_tokens() == 0 {
        push_wrapped(&mut text, conversation, TextRole::Dim, style, width);
        return text;
    }
    let estimated = if usage.estimated { " (estimated)" } else { "" };
    let tokens = counted(usage.input_tokens, "token", "tokens");
    let said = format!(
        "{conversation} {} {tokens} in, {} out{estimated}",
        style.pick("·", "-"),
        grouped(usage.output_tokens)
    );
    push_wrapped(&mut text, &said, TextRole::Dim, style, width);
    text
}

#[cfg(test)]
mod tests;
