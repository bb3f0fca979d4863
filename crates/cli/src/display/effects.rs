//! Calls that may have changed something although the conversation does not show them.

use allstop_core::record::CallOutcome;
use allstop_core::turn::{CallEffect, LostTurn, TurnEffects};
use allstop_terminal::{Style, Styled, Symbol, TextRole, styled};

/// Describes the calls of a turn that are not in the conversation, and the part of the turn that is. `is_reported` is
/// true if a later turn has sent them to the model.
pub(crate) fn describe_lost(lost: &LostTurn, is_reported: bool, style: Style) -> Styled {
    let mut text = Styled::default();
    let model = if is_reported {
        "the model was informed"
    } else {
        "the model learns it with the next message"
    };
    let turn = lost.turn;
    let said = if lost.is_partly_kept {
        format!(
            "the message and the completed steps of turn {turn} are in the conversation; these calls are not, but may have \
             changed something ({model}):"
        )
    } else {
        format!("turn {turn} is not in the conversation, but may have changed something ({model}):")
    };
    text.push_line(&style.paint(TextRole::Dim, said));
    text.push(&describe_effects(&lost.effects, style));
    text
}

/// Describes calls that may have changed something, one in each line.
pub(crate) fn describe_effects(effects: &TurnEffects, style: Style) -> Styled {
    describe_calls(effects, style, |call| (symbol_of(call), call.to_string()))
}

/// Like [`describe_effects`], for a turn that is under way.
pub(crate) fn describe_effects_so_far(effects: &TurnEffects, style: Style) -> Styled {
    describe_calls(effects, style, |call| match call.outcome {
        None => (Symbol::Running, format!("{}: running", call.title())),
        Some(_) => (symbol_of(call), call.to_string()),
    })
}

fn describe_calls(
    effects: &TurnEffects,
    style: Style,
    describe: impl Fn(&CallEffect) -> (Symbol, String),
) -> Styled {
    let mut text = Styled::default();
    if effects.omitted > 0 {
        text.push_line(&format_args!("  {} earlier calls", effects.omitted));
    }
    for call in &effects.calls {
        let (symbol, said) = describe(call);
        text.push_line(&styled!["  ", style.symbol(symbol), " ", said]);
    }
    text
}

fn symbol_of(call: &CallEffect) -> Symbol {
    match call.outcome {
        _ if call.is_outcome_unknown() => Symbol::Unknown,
        Some(CallOutcome::Succeeded) => Symbol::Good,
        Some(CallOutcome::Failed | CallOutcome::TimedOut) => Symbol::Bad,
        Some(CallOutcome::Stopped) => Symbol::Stopped,
        Some(CallOutcome::Denied) => Symbol::Denied,
        Some(CallOutcome::Unknown) | None => Symbol::Unknown,
    }
}
