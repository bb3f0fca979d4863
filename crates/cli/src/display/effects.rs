//! Calls that may have changed something although the conversation does not show them.

use allstop_core::record::CallOutcome;
use allstop_core::turn::{CallEffect, LostTurn, TurnEffects};
use allstop_terminal::{Style, Styled, Symbol, TextRole, styled};

/// Describes the calls of a turn that is not in the conversation.
pub(crate) fn describe_lost(lost: &LostTurn, style: Style) -> Styled {
    let mut text = Styled::default();
    text.push_line(&style.paint(
        TextRole::Dim,
        format_args!(
            "turn {} is not in the conversation, but may have changed something (the model learns it with the next \
             message):",
            lost.turn
        ),
    ));
    text.push(&describe_effects(&lost.effects, style));
    text
}

/// Describes calls that may have changed something, one in each line.
pub(crate) fn describe_effects(effects: &TurnEffects, style: Style) -> Styled {
    let mut text = Styled::default();
    if effects.omitted > 0 {
        text.push_line(&format_args!("  {} earlier calls", effects.omitted));
    }
    for call in &effects.calls {
        let symbol = style.symbol(symbol_of(call));
        text.push_line(&styled!["  ", symbol, " ", call.to_string()]);
    }
    text
}

fn symbol_of(call: &CallEffect) -> Symbol {
    match call.outcome {
        Some(CallOutcome::Succeeded) => Symbol::Good,
        Some(CallOutcome::Failed | CallOutcome::TimedOut) => Symbol::Bad,
        Some(CallOutcome::Stopped) => Symbol::Stopped,
        Some(CallOutcome::Denied) => Symbol::Denied,
        Some(CallOutcome::Unknown) | None => Symbol::Unknown,
    }
}
