//! `sessions show`.

use std::path::Path;

use allstop_core::counted::counted;
use allstop_core::describe_call;
use allstop_core::record::Attachment;
use allstop_log::read_session;
use allstop_runtime::SessionCost;
use allstop_terminal::{Style, Styled, Symbol, TextRole, styled};
use allstop_tools::removed_output;

use super::error::SessionsError;
use super::find::find;
use super::view::{RecordedCall, SessionReport, TurnReport, UnknownCall, Work};
use super::{Printed, SessionsPlace, View};
use crate::display::transcript::{self, TranscriptPart};
use crate::display::{
    age, describe_cost, describe_effects_so_far, describe_lost, describe_stop_reason, plain,
    render_full_receipt, to_stop, waits_for, work_line,
};
use crate::json_document::DocumentSchema;
use crate::shell_command::SameFlags;

/// Format of the report.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShowFormat {
    pub(super) as_json: bool,
    pub(super) with_receipts: bool,
}

/// Describes a session of the log. If the session is in `open`, also lists its running work.
pub(super) async fn show(
    SessionsPlace {
        log, open, prices, ..
    }: SessionsPlace<'_>,
    view: View,
    flags: &SameFlags,
    id: &str,
    format: ShowFormat,
) -> Result<Printed, SessionsError> {
    let id = find(log, id).await?;
    let (state, owner) = read_session(log, &id).await?;
    let open = open.iter().find(|open| open.session_id == id);
    let work = open.map_or(&[][..], |open| &open.work);
    let mut session = SessionReport::of(&id, &state, owner.as_ref(), work, format.with_receipts);
    session.cost = SessionCost::of_session(log, &id, prices.clone())
        .await?
        .total();
    Ok(if format.as_json {
        Printed::Json(DocumentSchema::Session.line(&session))
    } else {
        let conversation = transcript::entries(state.conversation());
        Printed::Text(describe(&session, &conversation, view, flags))
    })
}

fn describe(
    session: &SessionReport<'_>,
    conversation: &[TranscriptPart<'_>],
    view: View,
    flags: &SameFlags,
) -> Styled {
    let style = view.style;
    let mut text = Styled::default();
    let title = style.paint(TextRole::Strong, "session");
    let used = session.owner.map_or(String::new(), |owner| {
        format!("  in use by process {}", owner.pid)
    });
    text.push_line(&styled![title, " ", session.id.as_str(), used]);
    let opened = session.opened_at.map_or(String::new(), |at| {
        format!(", opened {}", age(at, view.now))
    });
    let folder = session.folder.unwrap_or("?");
    text.push_line(&format_args!("  in {folder}{opened}"));
    if let Some(model) = session.model {
        let server = session
            .base_url
            .map_or(String::new(), |url| format!(" at {url}"));
        text.push_line(&format_args!("  model {model}{server}"));
    }
    let (committed, metered) = (session.usage.committed, session.usage.metered);
    text.push_line(&format_args!(
        "  tokens: {} in, {} out in the conversation; {} in, {} out used in total{}",
        committed.input_tokens,
        committed.output_tokens,
        metered.input_tokens,
        metered.output_tokens,
        if metered.estimated {
            " (partly estimated)"
        } else {
            ""
        }
    ));
    let is_used = metered.total_tokens() > 0;
    if is_used {
        let cost = describe_cost(session.cost.as_ref(), metered);
        text.push_line(&format_args!("  cost: {cost}"));
    }
    if session.summed_up {
        text.push_line("  a summary replaces the oldest turns");
    }
    for turn in &session.turns {
        text.push(&describe_turn(turn, session.owner.is_some(), view));
    }
    if let Some(effects) = session.open_effects.filter(|_| session.owner.is_some()) {
        text.push(&describe_effects_so_far(effects, style));
    }
    for work in session.running {
        // The other work is described from the log.
        if let Some(reason) = work.item.waits_for {
            text.push_line(&styled![
                "  ",
                style.paint(TextRole::Warning, style.symbol(Symbol::Unknown)),
                " ",
                work_line(&work.item),
                ": ",
                waits_for(reason)
            ]);
        }
    }
    // The conversation may be long, so work that needs attention comes after it.
    if !conversation.is_empty() {
        text.push_line("");
        text.push_line(&style.paint(TextRole::Strong, "conversation"));
        text.push(&transcript::lines(conversation, style));
    }
    if !session.calls.is_empty() {
        text.push_line("");
        text.push_line(&style.paint(TextRole::Strong, "calls of the conversation"));
        for call in &session.calls {
            text.push(&lines_of_call(call, view));
        }
    }
    for lost in &session.lost {
        text.push_line("");
        text.push(&describe_lost(&lost.turn, lost.is_reported, style));
    }
    if !session.background.is_empty() {
        let title = style.paint(TextRole::Strong, "background work");
        text.push_line("");
        text.push_line(&title);
        for work in &session.background {
            text.push(&describe_work(work, view));
        }
        let running = session.background.iter().filter(|work| work.runs());
        if let Some(said) = to_stop(running.count(), &flags.stop(session.id)) {
            text.push_line(&style.paint(TextRole::Warning, format_args!("  {said}")));
        }
    }
    text
}

/// Formats a call with its whole result.
fn lines_of_call(call: &RecordedCall<'_>, view: View) -> Styled {
    let style = view.style;
    let symbol = match (call.result, call.is_error) {
        (None, _) => style.paint(TextRole::Warning, style.symbol(Symbol::Unknown)),
        (Some(_), true) => style.paint(TextRole::Bad, style.symbol(Symbol::Bad)),
        (Some(_), false) => style.paint(TextRole::Good, style.symbol(Symbol::Good)),
    };
    let mut text = Styled::default();
    let label = describe_call(call.name, call.arguments);
    let id = style.paint(TextRole::Dim, format_args!("({})", call.id));
    text.push_line(&styled!["  ", symbol, " ", label, " ", id]);
    push_quoted(&mut text, "    ", call.result.unwrap_or_default(), style);
    text
}

fn describe_turn(turn: &TurnReport<'_>, in_use: bool, view: View) -> Styled {
    let style = view.style;
    let (symbol, role, said) = match turn.stop_reason {
        Some(allstop_core::StopReason::Completed) => {
            (Symbol::Good, TextRole::Good, "completed".to_owned())
        }
        Some(reason) => {
            let cause = turn
                .cause
                .map_or(String::new(), |cause| format!(": {cause}"));
            let said = format!("{}{cause}", describe_stop_reason(reason));
            (Symbol::Stopped, TextRole::Warning, said)
        }
        None if in_use => (Symbol::Running, TextRole::Good, "under way".to_owned()),
        None => (
            Symbol::Unknown,
            TextRole::Warning,
            "no end in the log, after a crash or a failed store; the next open closes it"
                .to_owned(),
        ),
    };
    let undone = if turn.undone { ", undone" } else { "" };
    let said = format!("{} {said}{undone}", style.symbol(symbol));
    let about = format!(
        "{}, {}, {}",
        counted(turn.steps.into(), "step", "steps"),
        counted(turn.usage.total_tokens(), "token", "tokens"),
        age(turn.started_at, view.now)
    );
    let mut text = Styled::default();
    text.push_line("");
    text.push_line(&styled![
        style.paint(TextRole::Strong, format_args!("turn {}", turn.number)),
        "  ",
        style.paint(role, said),
        "  ",
        style.paint(TextRole::Dim, about)
    ]);
    let input = match turn.input {
        "" => "(started by the end of background work)",
        said => said,
    };
    text.push_line(&styled!["  ", style.pick("›", ">"), " ", input]);
    for call in &turn.unknown_calls {
        text.push_line(&describe_unknown(call, view));
    }
    if let Some(receipt) = turn.receipt {
        let width = view.width.saturating_sub(2);
        for line in render_full_receipt(receipt, style, width).lines() {
            text.push_line(&styled!["  ", line]);
        }
    }
    text
}

fn describe_unknown(call: &UnknownCall<'_>, view: View) -> Styled {
    let label = call
        .arguments
        .map_or_else(|| call.name.to_owned(), |a| describe_call(call.name, a));
    // If the call may be repeated, the user need not check its effect.
    if call.arguments.is_none() || call.effect.is_some_and(allstop_core::Effect::may_repeat) {
        return styled!["  ? ", label, "  ended without a result"];
    }
    let warning = " may have completed; check before repeating ";
    let warning = view.style.paint(TextRole::Alarm, warning);
    styled!["  ? ", label, "  ", warning]
}

fn describe_work(work: &Work<'_>, view: View) -> Styled {
    let style = view.style;
    let detached = match work.attachment {
        Attachment::Attached => "",
        Attachment::Detached => ", detached",
    };
    let (symbol, role, said) = match (work.ended, work.stop_pid, work.alive) {
        (Some(state), ..) => {
            let code = work
                .exit_code
                .map_or(String::new(), |code| format!(", exit code {code}"));
            let said = format!("{}{code}", plain(state.as_str()));
            (Symbol::Finished, TextRole::Dim, said)
        }
        (None, Some(pid), _) => {
            let said = format!("runs{detached}, process {pid}");
            (Symbol::Running, TextRole::Warning, said)
        }
        (None, None, Some(true)) => {
            let said = format!("runs{detached}, without its keeper");
            (Symbol::Running, TextRole::Warning, said)
        }
        (None, None, Some(false)) => {
            let said = format!("gone{detached}; its end is unknown");
            (Symbol::Unknown, TextRole::Dim, said)
        }
        (None, None, None) => {
            let why = match work.process.or(work.keeper) {
                Some(_) => "its process is in another PID namespace",
                None => "the log names no process",
            };
            let said = format!("may run{detached}; {why}");
            (Symbol::Unknown, TextRole::Warning, said)
        }
    };
    let mut text = Styled::default();
    text.push_line(&styled![
        "  ",
        style.paint(role, style.symbol(symbol)),
        " ",
        work.id.as_str(),
        "  ",
        work.name,
        "  ",
        style.paint(role, said)
    ]);
    if let Some(output) = work.output {
        let removed = removed_output(Path::new(output));
        let removed = removed.map_or(String::new(), |removed| format!(" · {removed}"));
        let line = style.paint(TextRole::Dim, format_args!("output: {output}{removed}"));
        text.push_line(&styled!["      ", line]);
    }
    push_quoted(&mut text, "      ", work.answer.unwrap_or_default(), style);
    text
}

/// Appends a text of several lines, with a bar at its left.
fn push_quoted(text: &mut Styled, indent: &str, quoted: &str, style: Style) {
    let bar = style.paint(TextRole::Dim, style.pick("│", "|"));
    for line in quoted.lines() {
        text.push_line(&styled![indent, bar, " ", line]);
    }
}
