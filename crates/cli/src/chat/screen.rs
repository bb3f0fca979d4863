//! The view of a chat above the line that is typed into.

use allstop_core::{CauseKind, Receipt, StopReason};
use allstop_session::MessageOutcome;

use crate::display::{
    Entry, Keep, Lane, Live, LiveOptions, RECEIPT_WIDTH_DEFAULT, Role, Style, Styled, plain,
    render_receipt, styled,
};
use crate::host::Host;

/// The view of a chat.
#[derive(Debug)]
pub(super) struct Screen {
    /// View of the running turn.
    pub(super) live: Live,
    lane: Lane,
    pub(super) style: Style,
    /// Somebody types below: the answers are theirs to read, and what they typed is shown above each.
    pub(super) types: bool,
}

impl Screen {
    /// Over the output of the process. With `terminal` somebody types there.
    pub(super) fn new(host: &Host, terminal: Option<&Lane>) -> Self {
        let lane = terminal.unwrap_or(host.output.stderr()).clone();
        let options = LiveOptions {
            environment: host.terminal.clone(),
            answers: true,
        };
        Self {
            live: Live::new(&host.output, &options),
            style: host.terminal.style(lane.is_terminal()),
            lane,
            types: terminal.is_some(),
        }
    }

    /// A line that only somebody who sits there has a use for.
    pub(super) fn hint(&self, text: &str) {
        if self.types {
            self.note(text);
        }
    }

    /// The line that is typed into; `None` takes it away.
    pub(super) fn entry(&self, entry: Option<Entry>) {
        if self.types {
            self.lane.show_entry(entry);
        }
    }

    /// A message or a command that was typed, and what there is to say about it.
    pub(super) fn typed(&self, text: &str, role: Role, about: &str) {
        if !self.types {
            return;
        }
        let sign = self.style.pick("›", ">");
        let line = styled![sign, " ", Styled::text(text).hanging(2)];
        let about = self.style.paint(Role::Dim, about);
        self.lines(styled![self.style.paint(role, line), about]);
    }

    /// A line for people, beside everything else.
    pub(super) fn note(&self, text: &str) {
        self.lines(self.style.paint(Role::Dim, Styled::text(text)));
    }

    /// An error.
    pub(super) fn error(&self, text: &str, hint: Option<&str>) {
        self.lines(self.style.failure(text, hint));
    }

    /// A text of several lines, such as an output or the help.
    pub(super) fn text(&self, text: &str) {
        self.lines(Styled::text(text));
    }

    /// A question about a call; its answer is typed below. `asker`: the sub-agent that it is for.
    pub(super) fn question(&self, text: &str, call: &str, asker: Option<&str>) {
        let asks = self.style.paint(Role::Warning, "? Allow");
        let text = self.style.paint(Role::Strong, text);
        let call = self.style.paint(Role::Dim, format_args!("({call})"));
        let mut lines = Styled::default();
        lines.push_line(&styled![asks, " ", text, " ", call]);
        if let Some(asker) = asker {
            let asker = format_args!("  asked by {asker}");
            lines.push_line(&self.style.paint(Role::Dim, asker));
        }
        self.lines(lines);
    }

    /// The row at which people look.
    pub(super) fn lane(&self) -> &Lane {
        &self.lane
    }

    fn lines(&self, lines: Styled) {
        self.lane.lines(lines, Keep::Must);
    }

    /// Ends the view of a turn. `outcome`: the outcome of its message, if there is one, with the whole answer.
    pub(super) fn end_turn(&mut self, outcome: Option<&MessageOutcome>) {
        let completed = outcome.filter(|outcome| outcome.is_completed());
        self.live.end(completed.map(|outcome| &*outcome.output));
    }

    /// The outcome of a message, but for its receipt.
    pub(super) fn outcome(&mut self, outcome: &MessageOutcome) {
        if let Some(error) = &outcome.error {
            self.error(&error.to_string(), error.hint.as_deref());
        } else if outcome.stop_reason != StopReason::Completed {
            let reason = plain(outcome.stop_reason.as_str());
            let why = match &outcome.cause {
                Some(cause) if cause.kind == CauseKind::Superseded => {
                    ": a newer message took its place".to_owned()
                }
                Some(cause) => format!(": {cause}"),
                None => String::new(),
            };
            self.lines(styled![self.style.paint(Role::Warning, reason), why]);
        }
        for denial in &outcome.denials {
            let denied = self.style.paint(Role::Warning, "denied:");
            let reason = plain(&denial.reason);
            self.lines(styled![denied, " ", denial.tool, ": ", reason]);
        }
    }

    /// A receipt.
    pub(super) fn receipt(&self, receipt: &Receipt) {
        let width = self.lane.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
        self.lane
            .lines(render_receipt(receipt, self.style, width), Keep::Last);
    }
}
