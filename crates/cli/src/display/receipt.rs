//! A receipt as a tree for people.
//!
//! Running work stands out, with its pids. The view adds no claim to the receipt.

mod row;

use allstop_core::receipt::{
    ConversationEffect, ItemState, NotStoppedReason, NothingToStop, ReceiptItem,
};
use allstop_core::{CauseKind, Receipt};

use self::row::{Columns, Row};
use super::words;
use crate::terminal::{Style, Styled, Symbol, TextRole, styled};

/// Columns of a receipt that is written where there is no terminal to ask.
pub(crate) const RECEIPT_WIDTH_DEFAULT: usize = 100;

/// True where a receipt says anything new: a failure's own says nothing where nothing ran beside it.
pub(crate) fn is_worth_showing(receipt: &Receipt) -> bool {
    !receipt.items().is_empty() || receipt.cause().kind != CauseKind::Failure
}

/// Draws a receipt in so many columns. It ends with an end of line.
pub(crate) fn render_receipt(receipt: &Receipt, style: Style, width: usize) -> Styled {
    let mut text = headline(receipt, style);
    text.push(&verdict(receipt, style));
    let items = receipt.items();
    let rows: Vec<Row> = items
        .iter()
        .map(|item| Row::of(item, receipt.is_preview(), style))
        .collect();
    let columns = Columns::of(&rows);
    for (at, row) in rows.iter().enumerate() {
        text.push(&row.draw(&columns, at + 1 == rows.len(), style, width));
    }
    text.push(&footer(receipt, style));
    text
}

fn headline(receipt: &Receipt, style: Style) -> Styled {
    let request = receipt.request();
    let target = &request.target;
    let verb = match (receipt.outcome(), receipt.is_preview()) {
        (Some(_), _) => "Nothing to stop:",
        (None, true) if receipt.items().iter().all(is_outside) => "Would stop nothing of",
        (None, true) => "Would stop",
        (None, false) => "Stopped",
    };
    let what = match receipt.outcome() {
        Some(NothingToStop::AlreadyEnded) => format!("{target} had already ended"),
        Some(NothingToStop::NotFound) => format!("there is no {target}"),
        None => target.to_string(),
    };
    let by = request.cause.by.as_ref();
    let by = by.map_or(String::new(), |by| format!(", by {by}"));
    let about = format!(
        " {} {}, cause {}{by}",
        style.pick("·", "-"),
        words::plain(request.extent.as_str()),
        request.cause
    );
    let mut text = Styled::default();
    let verb = style.paint(TextRole::Strong, verb);
    text.push_line(&styled![verb, " ", what, style.paint(TextRole::Dim, about)]);
    text
}

fn verdict(receipt: &Receipt, style: Style) -> Styled {
    let mut text = Styled::default();
    if receipt.outcome().is_some() || receipt.is_preview() {
        return text;
    }
    let observed = if receipt.cancel_observed() {
        ", acknowledged by the engine"
    } else {
        ""
    };
    let observed = style.paint(TextRole::Dim, observed);
    if receipt.quiet() {
        let after = receipt.quiet_after_ms();
        let after = after.map_or(String::new(), |ms| {
            format!(" after {}", words::milliseconds(ms.as_f64()))
        });
        let said = format!("{} quiet{after}", style.symbol(Symbol::Good));
        text.push_line(&styled![style.paint(TextRole::Good, said), observed]);
        return text;
    }
    let left = receipt.items().iter().filter(|item| is_left(item)).count();
    let loud = style.paint(
        TextRole::Alarm,
        format_args!("{} NOT QUIET", style.symbol(Symbol::Bad)),
    );
    let all = receipt.items().len();
    let said = format!(" {left} of {all} not stopped");
    text.push_line(&styled![loud, said, observed]);
    text
}

/// True if an item keeps its receipt from being quiet.
fn is_left(item: &ReceiptItem) -> bool {
    item.state.breaks_quiet() && !is_outside(item)
}

fn is_outside(item: &ReceiptItem) -> bool {
    matches!(
        item.state,
        ItemState::StillRunning {
            why: NotStoppedReason::OutsideExtent
        }
    )
}

fn footer(receipt: &Receipt, style: Style) -> Styled {
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
    let estimated = if usage.estimated { " (estimated)" } else { "" };
    let said = format!(
        "{conversation} {} {} tokens in, {} out{estimated}",
        style.pick("·", "-"),
        usage.input_tokens,
        usage.output_tokens
    );
    text.push_line(&style.paint(TextRole::Dim, said));
    text
}

#[cfg(test)]
mod tests;
